//! Format of `prices.toml`: entries, each with the region and date of its price.
//!
//! In: TOML. Out: its checked entries, each also as a line of text. Independent of plans.

use super::storage::Storage;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::InstancePrice;

/// Value in `[tiers]` for a tier without costs beyond the instance.
pub const INCLUDED: &str = "included";

/// Error of prices, with the file, the key and advice.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// The file cannot be read or parsed, or a price is wrong or missing.
    #[error("{0}")]
    Invalid(String),
    /// A variant cannot run on its instance.
    #[error("{0}")]
    Impossible(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriceFile {
    /// Path of the file, for errors.
    #[serde(skip)]
    path: PathBuf,
    pub(super) instances: BTreeMap<String, Priced<Instance>>,
    pub(super) memory: Option<Priced<Memory>>,
    #[serde(default)]
    pub(super) needs: BTreeMap<String, Vec<Need>>,
    #[serde(default)]
    pub(super) storage: BTreeMap<String, Priced<Storage>>,
    pub(super) staging: Option<Priced<Staging>>,
    pub(super) tiers: BTreeMap<String, String>,
}

/// Instance feature that a tier needs.
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
    /// Capacity of that disk, in gigabytes of 10^9 bytes as providers count it; 0 if unknown.
    #[serde(default)]
    pub(super) local_disk_gb: f64,
    #[serde(default)]
    pub(super) gpus: u32,
}

/// Disk for a copy, if the instance has no disk of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Staging {
    pub(super) usd_per_gb_month: f64,
}

/// Entry with its provenance, in one table of the file.
#[derive(Debug)]
pub(super) struct Priced<T> {
    pub(super) price: T,
    pub(super) provenance: Provenance,
}

/// Region and date of a price.
#[derive(Debug, Deserialize)]
pub(super) struct Provenance {
    provider: String,
    region: String,
    pub(super) as_of: String,
    checked: bool,
    pub(super) source: String,
    // Parsed only to be accepted; people read the file itself.
    #[serde(default, rename = "note")]
    _note: String,
}

/// Keys of [`Provenance`].
const PROVENANCE_KEYS: [&str; 6] = ["provider", "region", "as_of", "checked", "source", "note"];

impl<'de, T: DeserializeOwned> Deserialize<'de> for Priced<T> {
    // Serde's `flatten` would accept unknown keys.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (provenance, price): (toml::Table, toml::Table) = toml::Table::deserialize(deserializer)?
            .into_iter()
            .partition(|(key, _)| PROVENANCE_KEYS.contains(&key.as_str()));
        let custom_error = |error: toml::de::Error| D::Error::custom(error.message());
        Ok(Self {
            price: price.try_into().map_err(custom_error)?,
            provenance: provenance.try_into().map_err(custom_error)?,
        })
    }
}

impl PriceFile {
    /// Reads and checks the file.
    pub(super) fn read(path: &Path) -> Result<Self, PricingError> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| PricingError::Invalid(format!("cannot read prices {shown}: {error}")))?;
        let mut file: Self =
            toml::from_str(&text).map_err(|error| PricingError::Invalid(format!("prices {shown}: {error}")))?;
        path.clone_into(&mut file.path);
        let document = toml::from_str(&text).unwrap_or_default();
        if let Some((key, value)) = negative("", &toml::Value::Table(document)) {
            return Err(file.invalid(&format!("{key} is {value}: a price must be finite and at least 0")));
        }
        let mut entries = file.storage.iter();
        match entries.find_map(|(name, entry)| Some((name, entry.price.unpriced()?))) {
            None => Ok(file),
            Some((name, (key, missing))) => Err(file.invalid(&format!(
                "storage.{name}.{key} is more than the included amount, but {missing} is missing"
            ))),
        }
    }

    /// Error of a price that is wrong or missing.
    pub(super) fn invalid(&self, what: &str) -> PricingError {
        PricingError::Invalid(format!("prices {}: {what}", self.path.display()))
    }

    /// Error of a variant that lacks a property of its instance, or does not fit on it.
    pub(super) fn impossible(&self, variant: &str, what: &str) -> PricingError {
        let (path, valid) = (self.path.display(), names(&self.instances));
        PricingError::Impossible(format!(
            "prices {path}: variant `{variant}`: {what}; choose another `instance` for it: {valid}"
        ))
    }

    /// Returns the instance with a name.
    pub(super) fn instance(&self, name: &str) -> Result<&Priced<Instance>, PricingError> {
        self.instances.get(name).ok_or_else(|| {
            let valid = names(&self.instances);
            self.invalid(&format!("no [instances.\"{name}\"]: add it, or choose one of {valid}"))
        })
    }

    /// Returns the key of the feature that a tier needs and an instance lacks. Paid storage replaces a local disk.
    pub(super) fn lacks(&self, instance: &Instance, tier: &str, is_paid: bool) -> Option<&'static str> {
        let needs = self.needs.get(tier).into_iter().flatten();
        let mut keys = needs.map(|need| match need {
            Need::LocalDisk => ("local-disk", instance.local_disk || is_paid),
            Need::Gpu => ("gpu", instance.gpus > 0),
        });
        keys.find(|(_, is_there)| !is_there).map(|(key, _)| key)
    }

    /// True if a tier is on a local disk.
    pub(super) fn needs_disk(&self, tier: &str) -> bool {
        let needs = self.needs.get(tier);
        needs.is_some_and(|needs| needs.contains(&Need::LocalDisk))
    }

    /// Returns the entry of `[storage]` for a user named `label`: `price` if given, else the tier's. `None` if the instance's price
    /// includes it.
    pub(super) fn storage_price<'a>(
        &'a self,
        label: &str,
        price: Option<&'a str>,
        tier: Option<&str>,
    ) -> Result<Option<&'a str>, PricingError> {
        let (name, user) = match (price, tier) {
            (None, None) => return Ok(None),
            (Some(name), _) => (name, format!("`{label}` is priced as")),
            (None, Some(tier)) => {
                let name = self.tiers.get(tier).ok_or_else(|| {
                    let valid = names(&self.storage);
                    self.invalid(&format!(
                        "[tiers] has no price of tier `{tier}`: add `{tier} = \"{INCLUDED}\"` if the instance's price covers \
                        it, or an entry of [storage]: {valid}"
                    ))
                })?;
                (name.as_str(), format!("tiers.{tier} names"))
            }
        };
        match name {
            INCLUDED => Ok(None),
            _ => self.storage_entry(&user, name).map(|_| Some(name)),
        }
    }

    /// Returns an entry of `[storage]` by its name; `user` is the part of an error with the source of the name.
    pub(super) fn storage_entry(&self, user: &str, name: &str) -> Result<&Storage, PricingError> {
        self.storage.get(name).map(|entry| &entry.price).ok_or_else(|| {
            let valid = names(&self.storage);
            self.invalid(&format!(
                "{user} `{name}`, but there is no [storage.{name}]; it has {valid}, and `{INCLUDED}`"
            ))
        })
    }

    pub(super) fn memory_line(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        let price = format!("${} per GiB-hour", memory.price.usd_per_gib_hour);
        Some(memory.line("memory of a cache", &price))
    }

    pub(super) fn staging_line(&self) -> Option<String> {
        let staging = self.staging.as_ref()?;
        let price = format!("${} per GB-month", staging.price.usd_per_gb_month);
        Some(staging.line("staging disk", &price))
    }

    pub(super) fn storage_line(&self, tier: &str, entry: &str) -> String {
        let priced = &self.storage[entry];
        priced.line(&format!("{tier}: {entry}"), &priced.price.describe())
    }
}

/// Returns the first invalid price of the file, with its key.
fn negative(at: &str, value: &toml::Value) -> Option<(String, f64)> {
    let number = match value {
        toml::Value::Table(table) => {
            let mut entries = table.iter();
            return entries.find_map(|(key, value)| {
                let is_bare = key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
                let key = if is_bare { key.clone() } else { format!("{key:?}") };
                negative(format!("{at}.{key}").trim_start_matches('.'), value)
            });
        }
        toml::Value::Float(number) => *number,
        toml::Value::Integer(number) => *number as f64,
        _ => return None,
    };
    (!number.is_finite() || number < 0.0).then(|| (at.to_owned(), number))
}

impl<T> Priced<T> {
    /// Describes a price in words, with its region, date and source.
    pub(super) fn line(&self, name: &str, price: &str) -> String {
        let from = &self.provenance;
        let note = match from.checked {
            true => "",
            false => " (from memory, not checked)",
        };
        let (region, as_of, source) = (format!("{} {}", from.provider, from.region), &from.as_of, &from.source);
        format!("{name}: {price}, {region}, as of {as_of}{note}, {source}")
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

    pub(super) fn instance_line(&self, name: &str) -> String {
        self.line(name, &format!("${}/h", self.price.usd_per_hour))
    }
}

pub(super) fn names<T>(map: &BTreeMap<String, T>) -> String {
    map.keys().cloned().collect::<Vec<_>>().join(", ")
}
