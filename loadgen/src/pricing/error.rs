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
    /// A variant names a storage price that is not in the file.
    #[error("prices {}: variant `{variant}` is priced as `{storage}`, but there is no [storage.{storage}]; it has {known}, and \
             `included`", path.display())]
    UnknownPrice {
        /// The file.
        path: PathBuf,
        /// The variant.
        variant: String,
        /// What it names.
        storage: String,
        /// The storage prices there are.
        known: String,
    },
    /// A variant cannot be had on its instance.
    #[error("prices {}: variant `{variant}`: {what}; choose another `instance` for it: {known}", path.display())]
    Impossible {
        /// The file.
        path: PathBuf,
        /// The variant.
        variant: String,
        /// What the instance lacks.
        what: String,
        /// The instances there are.
        known: String,
    },
    /// What a variant keeps on its instance's disk is more than that holds.
    #[error("prices {}: variant `{variant}`: the {kept_gb:.1} GB that it keeps on the instance's disk do not fit into the {disk_gb} GB of \
             {instance}; choose another `instance` for it: {known}", path.display())]
    DoesNotFit {
        /// The file.
        path: PathBuf,
        /// The variant.
        variant: String,
        /// Its table, models and copy, in gigabytes of 10^9 bytes.
        kept_gb: f64,
        /// What the disk holds, likewise.
        disk_gb: f64,
        /// Its instance.
        instance: String,
        /// The instances there are.
        known: String,
    },
    /// A variant is staged, its instance has no disk, and none has a price.
    #[error("prices {}: variant `{variant}` keeps a copy on a disk, which {instance} has not, and [staging] does not say what one \
             costs; add it with `usd_per_gb_month`, or choose an instance with `local_disk = true`", path.display())]
    NoStaging {
        /// The file.
        path: PathBuf,
        /// The variant.
        variant: String,
        /// Its instance.
        instance: String,
    },
    /// Something is provisioned that has no price.
    #[error("prices {}: storage.{storage}.{key} is more than what is included, and there is no {missing}", path.display())]
    Unpriced {
        /// The file.
        path: PathBuf,
        /// The entry.
        storage: String,
        /// What it provisions.
        key: &'static str,
        /// What is missing.
        missing: &'static str,
    },
}
