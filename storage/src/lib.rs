//! The storage tiers behind one trait, the wrappers around them, and the conformance suite that each must pass.
//!
//! In: object paths and byte ranges. Out: bytes, and how they were got ([`ReadCost`]). This crate knows nothing of
//! models, requests or load.
//!
//! - [`tier`]: the trait, and the types of its calls
//! - [`path`]: validated object paths
//! - [`error`]: what can go wrong with a read
//! - [`deadline`]: when the one who asked stops waiting
//! - [`config`]: a tier's TOML, and [`open`], which builds a tier from it
//! - [`device`]: reads into the memory of a CUDA device
//! - [`tiers`]: the tiers themselves
//! - [`wrappers`]: `emulated`, `staged`, `metered` and `cache`
//! - [`conformance`]: the suite
//! - [`origin`] (feature `origin`): the embedded S3, NFSv3 and Flight servers

pub mod config;
pub mod conformance;
pub mod deadline;
pub mod device;
pub mod error;
pub mod limits;
#[cfg(feature = "origin")]
pub mod origin;
pub mod path;
pub mod tier;
pub mod tiers;
mod unclaimed;
pub mod wrappers;

pub use config::{TierConfig, open, open_counted};
pub use error::{ErrorKind, StorageError};
pub use path::ObjectPath;
pub use tier::{Body, Object, Read, ReadCost, ReadMany, Tier, TierInfo};
