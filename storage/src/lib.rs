//! Storage tiers behind one trait, the wrappers around them, and the conformance suite that each must pass.
//!
//! In: object paths and byte ranges. Out: bytes, and the cost of reading them ([`ReadCost`]). This crate knows nothing
//! of models, requests or load.
//!
//! - [`tier`]: the trait, and the types of its calls
//! - [`path`]: validated object paths
//! - [`error`]: errors of reads
//! - [`deadline`]: the time at which a caller stops waiting
//! - [`config`]: a tier's TOML, and [`open()`], which builds a tier from it
//! - [`device`]: reads into the memory of a CUDA device
//! - [`tiers`]: the tiers themselves
//! - [`wrappers`]: `emulated`, `staged`, `metered` and `cache`
//! - [`conformance`]: the suite
//!
//! The features `flight` and `gds` bring the tiers of these names with what they depend on; `full` is both.

mod blocking;
pub mod config;
pub mod conformance;
mod cost;
pub mod deadline;
pub mod device;
pub mod error;
pub mod limits;
mod object;
mod open;
pub mod path;
mod ranges;
mod retry;
mod segments;
pub mod tier;
pub mod tiers;
mod unreported;
pub mod wrappers;

pub use config::TierConfig;
pub use error::{ErrorKind, StorageError};
pub use open::{open, open_counted};
pub use path::ObjectPath;
pub use tier::{Body, Object, Read, ReadCost, ReadMany, Tier, TierInfo};
