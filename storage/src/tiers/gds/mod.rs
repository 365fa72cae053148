//! Local files into device memory, by the way that the config names; read by the server as bytes on the host, or left on
//! the device for whoever can use them there. In: object paths below a root. Out: bytes, and the way that they took:
//! `gds` only where cuFile's own counters prove it.
//!
//! Here is what makes it a tier: paths, versions, jobs and their costs. The device and the ways to it are `tierlab-gds`.
//!
//! **This tier has not run on hardware yet.** The tests run all of it against a stand-in for CUDA and cuFile, in which
//! host memory plays the device; what that cannot show is said in the README. Without the feature `gds` only the
//! configuration is built.

mod config;
#[cfg(feature = "gds")]
mod engine;
#[cfg(feature = "gds")]
mod options;
#[cfg(feature = "gds")]
mod tier;

pub use config::GdsConfig;
#[cfg(feature = "gds")]
pub use tier::GdsTier;
