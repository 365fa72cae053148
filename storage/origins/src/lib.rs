//! Embedded servers for the network tiers: S3, NFSv3 and Arrow Flight.
//!
//! In: a folder and an address. Out: a real server over real sockets, until it is stopped. Made for tests and for the
//! lab on loopback; the binary `tierlab-origin` starts them. Nothing that serves inference links this crate.

pub mod cli;
mod connection;
#[cfg(feature = "flight")]
pub mod flight;
pub mod nfs;
pub mod s3;
