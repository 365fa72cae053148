//! Errors of reading prices.

use std::path::PathBuf;

/// Reason for which prices are not available.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// The file could not be read.
    #[error("cannot read prices {}: {source}", path.display())]
    Read {
        /// Price file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is not a valid price list.
    #[error("prices {}: {source}", path.display())]
    Parse {
        /// Price file.
        path: PathBuf,
        /// Fault with its line.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("prices {}: {key} is {value}: a price must be a finite number, zero or above", path.display())]
    BadPrice {
        /// Price file.
        path: PathBuf,
        /// Key of the value.
        key: String,
        /// Invalid value.
        value: f64,
    },
    /// The instance is not in the file.
    #[error("prices {}: no [instances.\"{instance}\"]; it has {known}. Add it, or choose one of these", path.display())]
    UnknownInstance {
        /// Price file.
        path: PathBuf,
        /// Requested instance.
        instance: String,
        /// Instances in the file.
        known: String,
    },
    /// The tier is not in the file.
    #[error("prices {}: [tiers] does not say what tier `{tier}` costs. Add `{tier} = \"included\"` if the instance's \
             price covers it, or name one of [storage]: {known}", path.display())]
    UnknownTier {
        /// Price file.
        path: PathBuf,
        /// Requested tier.
        tier: String,
        /// Storage prices in the file.
        known: String,
    },
    /// The tier names a storage price that is not in the file.
    #[error("prices {}: tiers.{tier} names `{storage}`, but there is no [storage.{storage}]; it has {known}", path.display())]
    UnknownStorage {
        /// Price file.
        path: PathBuf,
        /// Tier with the wrong entry.
        tier: String,
        /// Missing storage price.
        storage: String,
        /// Storage prices in the file.
        known: String,
    },
    /// A variant names a storage price that is not in the file.
    #[error("prices {}: variant `{variant}` is priced as `{storage}`, but there is no [storage.{storage}]; it has {known}, and \
             `included`", path.display())]
    UnknownPrice {
        /// Price file.
        path: PathBuf,
        /// Variant with the wrong entry.
        variant: String,
        /// Missing storage price.
        storage: String,
        /// Storage prices in the file.
        known: String,
    },
    /// A variant cannot run on its instance.
    #[error("prices {}: variant `{variant}`: {what}; choose another `instance` for it: {known}", path.display())]
    Impossible {
        /// Price file.
        path: PathBuf,
        /// Variant without a suitable instance.
        variant: String,
        /// Missing feature of the instance.
        what: String,
        /// Instances in the file.
        known: String,
    },
    /// A variant's data does not fit on its instance's disk.
    #[error("prices {}: variant `{variant}`: the {kept_gb:.1} GB that it keeps on the instance's disk do not fit into the {disk_gb} GB of \
             {instance}; choose another `instance` for it: {known}", path.display())]
    DoesNotFit {
        /// Price file.
        path: PathBuf,
        /// Variant that does not fit.
        variant: String,
        /// Size of its table, models and copy, in gigabytes of 10^9 bytes.
        kept_gb: f64,
        /// Capacity of the disk, in gigabytes of 10^9 bytes.
        disk_gb: f64,
        /// Instance of the variant.
        instance: String,
        /// Instances in the file.
        known: String,
    },
    /// A variant is staged, but its instance has no disk, and no disk has a price.
    #[error("prices {}: variant `{variant}` keeps a copy on a disk, which {instance} has not, and [staging] does not say what one \
             costs; add it with `usd_per_gb_month`, or choose an instance with `local_disk = true`", path.display())]
    NoStaging {
        /// Price file.
        path: PathBuf,
        /// Staged variant.
        variant: String,
        /// Instance of the variant.
        instance: String,
    },
    /// A provisioned quantity has no price.
    #[error("prices {}: storage.{storage}.{key} is more than what is included, and there is no {missing}", path.display())]
    Unpriced {
        /// Price file.
        path: PathBuf,
        /// Storage entry.
        storage: String,
        /// Key of the provisioned quantity.
        key: &'static str,
        /// Key of the missing price.
        missing: &'static str,
    },
}
