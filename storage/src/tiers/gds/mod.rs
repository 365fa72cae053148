//! Local files read into device memory, by the configured path. The server reads them as bytes on the host, or leaves
//! them on the device for its sessions there. In: object paths below a root. Out: bytes, and the path that they took:
//! `gds` only if cuFile's own counters prove it.
//!
//! This module adds the parts of a tier: paths, versions, jobs and their costs. The device and the paths to it are in
//! `tierlab-gds`.
//!
//! **This tier has not run on hardware yet.** The tests run all of it against a stand-in for CUDA and cuFile, in which
//! host memory plays the device; the README lists what that cannot show. Without the feature `gds` only the
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
