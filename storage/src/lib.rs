//! Storage tiers behind one trait, their wrappers, and the conformance suite that each must pass.
//!
//! In: object paths and byte ranges. Out: bytes, and the cost of reading them ([`ReadCost`]). This crate knows nothing
//! of models, requests or load.
//!
//! - [`tier`]: the trait, and the types of its calls
//! - [`path`]: validated object paths
//! - [`ranges`]: joining of byte ranges
//! - [`error`]: errors of reads
//! - [`deadline`]: the time at which a caller stops waiting
//! - [`config`]: a tier's TOML, and [`open()`], which builds a tier from it
//! - [`device`]: reads into the memory of a CUDA device
//! - [`tiers`]: the tiers themselves
//! - [`wrappers`]: `emulated`, `staged`, `metered` and `cache`
//! - [`content`]: bytes for tests and measurements; the suite that each tier must pass is `tests/conformance/`
//!
//! The features `flight` and `gds` add these tiers and their dependencies; `full` enables both.

pub mod config;
pub mod content;
pub mod deadline;
pub mod error;
pub mod limits;
mod metrics;
pub mod path;
pub mod ranges;
mod retry;
mod tasks;
pub mod tier;
pub mod tiers;
mod unreported;
pub mod wrappers;

/// The suite's files name this crate as an external crate, like other crates' tests.
#[cfg(test)]
#[path = "../tests/conformance/mod.rs"]
mod conformance;
#[cfg(test)]
extern crate self as tierlab_storage;

pub use config::{TierConfig, open, open_counted};
pub use error::{ErrorKind, StorageError};
pub use path::ObjectPath;
pub use tasks::cleaned_up;
pub use tier::{Body, Object, Read, ReadCost, ReadMany, Tier, TierInfo};

/// Devices, the paths to them, and reads into their memory. Devices and paths come from `tierlab-gds`, which knows
/// nothing of objects and versions.
pub mod device {
    pub use crate::tier::{DeviceReads, Landed};
    pub use tierlab_gds::{
        Column, DeviceBytes, DeviceError, DeviceErrorKind, DevicePath, DevicePool, Gpu, Pinned, Search, Stream,
        device_nodes, gather, missing_for_gds, nvml, shortfall,
    };
}
