//! `prices.toml` as it is written: entries with where and when each price was valid.
//!
//! In: TOML. Out: its entries, checked, and each in one line. Knows nothing of plans.

use super::error::PricingError;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_analysis::record::InstancePrice;

/// What `[tiers]` says of a tier that costs nothing beyond the instance.
const INCLUDED: &str = "included";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriceFile {
    pub(super) instances: BTreeMap<String, Priced<Instance>>,
    pub(super) memory: Option<Priced<Memory>>,
    #[serde(default)]
    pub(super) needs: BTreeMap<String, Vec<Need>>,
    pub(super) storage: BTreeMap<String, Priced<Storage>>,
    pub(super) tiers: BTreeMap<String, String>,
}

/// What an instance must have for a tier.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Need {
    LocalDisk,
    Gpu,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) usd_per_gib_hour: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instance {
    pub(super) usd_per_hour: f64,
    #[serde(default)]
    pub(super) memory_gib: f64,
    #[serde(default)]
    pub(super) local_disk: bool,
    #[serde(default)]
    pub(super) gpus: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Storage {
    #[serde(default)]
    pub(super) usd_per_1000_get_requests: f64,
    // A run only reads: this price is checked, and not used.
    #[serde(default)]
    pub(super) usd_per_1000_put_requests: f64,
    #[serde(default)]
    pub(super) usd_per_gb_read: f64,
    #[serde(default)]
    pub(super) usd_per_hour: f64,
}

/// An entry: what it prices, and where and when that was valid. Both stand in one table of the file.
#[derive(Debug)]
pub(super) struct Priced<T> {
    pub(super) price: T,
    pub(super) provenance: Provenance,
}

/// Where and when a price was valid.
#[derive(Debug, Deserialize)]
pub(super) struct Provenance {
    provider: String,
    region: String,
    pub(super) as_of: String,
    checked: bool,
    pub(super) source: String,
    // Read so that it is checked; people read the file itself.
    #[serde(default, rename = "note")]
    _note: String,
}

/// The keys of [`Provenance`].
const OF_PROVENANCE: [&str; 6] = ["provider", "region", "as_of", "checked", "source", "note"];

impl<'de, T: DeserializeOwned> Deserialize<'de> for Priced<T> {
    // Serde's `flatten` would let unknown keys through.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (provenance, price): (toml::Table, toml::Table) = toml::Table::deserialize(deserializer)?
            .into_iter()
            .partition(|(key, _)| OF_PROVENANCE.contains(&key.as_str()));
        Ok(Self {
            price: price
                .try_into()
                .map_err(|error: toml::de::Error| D::Error::custom(error.message()))?,
            provenance: provenance
                .try_into()
                .map_err(|error: toml::de::Error| D::Error::custom(error.message()))?,
        })
    }
}

impl PriceFile {
    /// The instances that a tier can be had on.
    pub(super) fn instances_for(&self, tier: &str) -> Vec<String> {
        let needs = self.needs.get(tier).map_or(&[][..], Vec::as_slice);
        let has = |instance: &Instance, need: &Need| match need {
            Need::LocalDisk => instance.local_disk,
            Need::Gpu => instance.gpus > 0,
        };
        self.instances
            .iter()
            .filter(|(_, entry)| needs.iter().all(|need| has(&entry.price, need)))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The storage price of a tier; `None` where the instance's price includes it.
    pub(super) fn storage_of(&self, path: &Path, tier: &str) -> Result<Option<&str>, PricingError> {
        let (path, known) = (path.to_owned(), names(&self.storage));
        match self.tiers.get(tier).map(String::as_str) {
            None => Err(PricingError::UnknownTier {
                path,
                tier: tier.to_owned(),
                known,
            }),
            Some(INCLUDED) => Ok(None),
            Some(storage) if self.storage.contains_key(storage) => Ok(Some(storage)),
            Some(storage) => {
                let (tier, storage) = (tier.to_owned(), storage.to_owned());
                Err(PricingError::UnknownStorage {
                    path,
                    tier,
                    storage,
                    known,
                })
            }
        }
    }

    pub(super) fn check(&self, path: &Path) -> Result<(), PricingError> {
        let instances = self.instances.iter().flat_map(|(name, entry)| {
            let i = &entry.price;
            [("usd_per_hour", i.usd_per_hour), ("memory_gib", i.memory_gib)]
                .map(|(key, value)| (format!("instances.\"{name}\".{key}"), value))
        });
        let memory = self
            .memory
            .iter()
            .map(|memory| ("memory.usd_per_gib_hour".to_owned(), memory.price.usd_per_gib_hour));
        let storage = self.storage.iter().flat_map(|(name, entry)| {
            let s = &entry.price;
            [
                ("usd_per_1000_get_requests", s.usd_per_1000_get_requests),
                ("usd_per_1000_put_requests", s.usd_per_1000_put_requests),
                ("usd_per_gb_read", s.usd_per_gb_read),
                ("usd_per_hour", s.usd_per_hour),
            ]
            .map(|(key, value)| (format!("storage.{name}.{key}"), value))
        });
        for (key, value) in instances.chain(memory).chain(storage) {
            if !value.is_finite() || value < 0.0 {
                return Err(PricingError::BadPrice {
                    path: path.to_owned(),
                    key,
                    value,
                });
            }
        }
        Ok(())
    }
}

impl Provenance {
    fn describe(&self, name: &str, price: &str) -> String {
        let Self {
            provider,
            region,
            as_of,
            checked,
            source,
            ..
        } = self;
        let note = if *checked { "" } else { " (from memory, not checked)" };
        format!("{name}: {price}, {provider} {region}, as of {as_of}{note}, {source}")
    }
}

impl<T> Priced<T> {
    fn describe(&self, name: &str, price: &str) -> String {
        self.provenance.describe(name, price)
    }
}

impl Priced<Memory> {
    pub(super) fn memory_line(&self) -> String {
        self.describe(
            "memory of a cache",
            &format!("${} per GiB and hour", self.price.usd_per_gib_hour),
        )
    }
}

impl Priced<Instance> {
    pub(super) fn named(&self, name: &str) -> InstancePrice {
        InstancePrice {
            name: name.to_owned(),
            usd_per_hour: self.price.usd_per_hour,
            checked: self.provenance.checked,
        }
    }

    pub(super) fn line(&self, name: &str) -> String {
        self.describe(name, &format!("${}/h", self.price.usd_per_hour))
    }
}

impl Priced<Storage> {
    pub(super) fn line(&self, tier: &str, name: &str) -> String {
        let prices: Vec<String> = [
            (self.price.usd_per_1000_get_requests, "1,000 GET requests"),
            (self.price.usd_per_gb_read, "GB read"),
            (self.price.usd_per_hour, "hour"),
        ]
        .iter()
        .filter(|(usd, _)| *usd > 0.0)
        .map(|(usd, unit)| format!("${usd} per {unit}"))
        .collect();
        let price = if prices.is_empty() {
            "free of charge".to_owned()
        } else {
            prices.join(", ")
        };
        self.describe(&format!("{tier}: {name}"), &price)
    }
}

pub(super) fn names<T>(map: &BTreeMap<String, T>) -> String {
    map.keys().cloned().collect::<Vec<_>>().join(", ")
}
