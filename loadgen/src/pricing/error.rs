//! Why prices could not be had.

use std::path::PathBuf;

/// Why prices could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// The file could not be read.
    #[error("cannot read prices {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("prices {}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where.
        source: Box<toml::de::Error>,
    },
    /// A value makes no sense.
    #[error("prices {}: {key} is {value}: a price must be a finite number, zero or above", path.display())]
    BadPrice {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: f64,
    },
    /// The instance is not in the file.
    #[error("prices {}: no [instances.\"{instance}\"]; it has {known}. Add it, or choose one of these", path.display())]
    UnknownInstance {
        /// The file.
        path: PathBuf,
        /// The instance asked for.
        instance: String,
        /// Those there are.
        known: String,
    },
    /// The tier is not in the file.
    #[error("prices {}: [tiers] does not say what tier `{tier}` costs. Add `{tier} = \"included\"` if the instance's \
             price covers it, or name one of [storage]: {known}", path.display())]
    UnknownTier {
        /// The file.
        path: PathBuf,
        /// The tier asked for.
        tier: String,
        /// The storage prices there are.
        known: String,
    },
    /// The tier names a storage price that is not in the file.
    #[error("prices {}: tiers.{tier} names `{storage}`, but there is no [storage.{storage}]; it has {known}", path.display())]
    UnknownStorage {
        /// The file.
        path: PathBuf,
        /// The tier.
        tier: String,
        /// What it names.
        storage: String,
        /// The storage prices there are.
        known: String,
    },
}
