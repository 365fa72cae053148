//! Format of `prices.toml`: entries, each with the place and date of its price.
//!
//! In: TOML. Out: its checked entries, each also as a line of text. Knows nothing of plans.

use super::error::PricingError;
use super::storage::Storage;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_analysis::record::InstancePrice;

/// Value in `[tiers]` for a tier without costs beyond the instance.
pub const INCLUDED: &str = "included";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriceFile {
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

impl Need {
    /// Key in the file.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::LocalDisk => "local-disk",
            Self::Gpu => "gpu",
        }
    }
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

/// Entry with its provenance, both in one table of the file.
#[derive(Debug)]
pub(super) struct Priced<T> {
    pub(super) price: T,
    pub(super) provenance: Provenance,
}

/// Place and date of a price.
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
const OF_PROVENANCE: [&str; 6] = ["provider", "region", "as_of", "checked", "source", "note"];

impl<'de, T: DeserializeOwned> Deserialize<'de> for Priced<T> {
    // Serde's `flatten` would accept unknown keys.
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
    /// Reads and checks the file.
    pub(super) fn read(path: &Path) -> Result<Self, PricingError> {
        let text = std::fs::read_to_string(path).map_err(|source| PricingError::Read {
            path: path.to_owned(),
            source,
        })?;
        let file: Self = toml::from_str(&text).map_err(|source| PricingError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let whole = toml::from_str(&text).unwrap_or_default();
        if let Some((key, value)) = negative("", &toml::Value::Table(whole)) {
            let what = format!("{key} is {value}: a price must be a finite number, zero or above");
            return Err(PricingError::invalid(path, what));
        }
        let mut entries = file.storage.iter();
        match entries.find_map(|(name, entry)| Some((name, entry.price.unpriced()?))) {
            None => Ok(file),
            Some((name, (key, missing))) => {
                let what = format!("storage.{name}.{key} is more than what is included, and there is no {missing}");
                Err(PricingError::invalid(path, what))
            }
        }
    }

    /// Returns the instance with a name.
    pub(super) fn instance(&self, path: &Path, name: &str) -> Result<&Priced<Instance>, PricingError> {
        self.instances.get(name).ok_or_else(|| {
            let known = names(&self.instances);
            let what = format!("no [instances.\"{name}\"]; it has {known}. Add it, or choose one of these");
            PricingError::invalid(path, what)
        })
    }

    /// Returns the feature that a tier needs and an instance lacks. Paid storage replaces a local disk.
    pub(super) fn lacks(&self, instance: &Instance, tier: &str, is_paid: bool) -> Option<Need> {
        let needs = self.needs.get(tier).map_or(&[][..], Vec::as_slice);
        let has = |need: &Need| match need {
            Need::LocalDisk => instance.local_disk || is_paid,
            Need::Gpu => instance.gpus > 0,
        };
        needs.iter().find(|need| !has(need)).copied()
    }

    /// Returns the bytes of the instance's own disk, if an unpaid tier lies on it; `None` if it lies elsewhere, or the
    /// size is unknown.
    pub(super) fn own_disk_bytes(&self, instance: &Instance, tier: &str, is_paid: bool) -> Option<f64> {
        let needs_disk = self
            .needs
            .get(tier)
            .is_some_and(|needs| needs.contains(&Need::LocalDisk));
        (needs_disk && !is_paid && instance.local_disk_gb > 0.0).then_some(instance.local_disk_gb * 1e9)
    }

    /// Returns the instances that support a tier.
    pub(super) fn instances_for(&self, tier: &str, is_paid: bool) -> Vec<String> {
        self.instances
            .iter()
            .filter(|(_, entry)| self.lacks(&entry.price, tier, is_paid).is_none())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns the entry of `[storage]` that a user named `label` pays: `price` if it names one, else that of its tier. `None` if the
    /// instance's price includes it.
    pub(super) fn storage_price<'a>(
        &'a self,
        path: &Path,
        label: &str,
        price: Option<&'a str>,
        tier: Option<&str>,
    ) -> Result<Option<&'a str>, PricingError> {
        match (price, tier) {
            (Some(INCLUDED), _) | (None, None) => Ok(None),
            (Some(name), _) => self.storage_entry(path, label, name).map(Some),
            (None, Some(tier)) => self.storage_of(path, tier),
        }
    }

    /// Returns an entry of `[storage]` by its name; `label` names the user of the entry in errors.
    pub(super) fn storage_entry<'a>(&self, path: &Path, label: &str, name: &'a str) -> Result<&'a str, PricingError> {
        if self.storage.contains_key(name) {
            return Ok(name);
        }
        let known = names(&self.storage);
        let what = format!(
            "`{label}` is priced as `{name}`, but there is no [storage.{name}]; it has {known}, and `{INCLUDED}`"
        );
        Err(PricingError::invalid(path, what))
    }

    /// Returns the storage price of a tier; `None` if the instance's price includes it.
    fn storage_of(&self, path: &Path, tier: &str) -> Result<Option<&str>, PricingError> {
        let known = names(&self.storage);
        let what = match self.tiers.get(tier).map(String::as_str) {
            Some(INCLUDED) => return Ok(None),
            Some(storage) if self.storage.contains_key(storage) => return Ok(Some(storage)),
            Some(storage) => {
                format!("tiers.{tier} names `{storage}`, but there is no [storage.{storage}]; it has {known}")
            }
            None => format!(
                "[tiers] does not say what tier `{tier}` costs. Add `{tier} = \"{INCLUDED}\"` if the instance's price covers it, or \
                 name one of [storage]: {known}"
            ),
        };
        Err(PricingError::invalid(path, what))
    }
}

/// First number of the file that is no price, with its key.
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
    /// Describes a price in words, with its place, date and source.
    pub(super) fn line(&self, name: &str, price: &str) -> String {
        let Provenance {
            provider,
            region,
            as_of,
            checked,
            source,
            ..
        } = &self.provenance;
        let note = if *checked { "" } else { " (from memory, not checked)" };
        format!("{name}: {price}, {provider} {region}, as of {as_of}{note}, {source}")
    }
}

impl PriceFile {
    pub(super) fn memory_line(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        let price = format!("${} per GiB and hour", memory.price.usd_per_gib_hour);
        Some(memory.line("memory of a cache", &price))
    }

    pub(super) fn staging_line(&self) -> Option<String> {
        let staging = self.staging.as_ref()?;
        let price = format!("${} per GB-month", staging.price.usd_per_gb_month);
        Some(staging.line("staging disk", &price))
    }

    pub(super) fn storage_line(&self, tier: &str, entry: &str) -> String {
        let priced = &self.storage[entry];
        priced.line(&format!("{tier}: {entry}"), &priced.price.words())
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
