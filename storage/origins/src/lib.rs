//! Embedded servers for the network tiers: S3, NFSv3 and Arrow Flight.
//!
//! In: a folder and an address. Out: a real server over real sockets, until it is stopped. Made for tests and for the
//! lab on loopback; the binary `tierlab-origin` starts them. Nothing that serves inference links this crate.

#[cfg(feature = "flight")]
pub mod flight;
#[cfg(not(feature = "flight"))]
#[path = "flight_left_out.rs"]
pub mod flight;
pub mod nfs;
pub mod s3;
