//! Prices for reading a table, from the project's price file. In: TOML. Out: prices of tiers, memory and instances,
//! with their sources. `tierlab-loadgen` validates the whole file. A GB is 2^30 bytes.

use crate::plan::bad_usage;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// Price file.
#[derive(Debug, Deserialize)]
pub(super) struct PriceFile {
    pub(super) memory: Option<Memory>,
    #[serde(default)]
    storage: BTreeMap<String, Entry>,
    #[serde(default)]
    instances: BTreeMap<String, Instance>,
}

/// Price of memory per hour.
#[derive(Debug, Deserialize)]
pub(super) struct Memory {
    pub(super) usd_per_gib_hour: f64,
    #[serde(flatten)]
    pub(super) source: Source,
}

/// Price of an instance per hour.
#[derive(Debug, Deserialize)]
pub(super) struct Instance {
    pub(super) usd_per_hour: f64,
    #[serde(flatten)]
    pub(super) source: Source,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(default)]
    usd_per_1000_get_requests: f64,
    #[serde(default)]
    usd_per_gb_read: f64,
    #[serde(default)]
    usd_per_gb_cross_zone: f64,
    #[serde(flatten)]
    source: Source,
}

/// Source of a price.
#[derive(Debug, Deserialize)]
pub(super) struct Source {
    region: Option<String>,
    as_of: Option<String>,
    checked: Option<bool>,
    source: Option<String>,
}

impl Source {
    pub(super) fn text(&self) -> String {
        let known = |part: &Option<String>| part.clone().unwrap_or_else(|| "unknown".to_owned());
        let unchecked = if self.checked == Some(true) {
            ""
        } else {
            ", not checked"
        };
        format!(
            "{}, {}{unchecked}, {}",
            known(&self.region),
            known(&self.as_of),
            known(&self.source)
        )
    }
}

/// Price of reads from a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct TierPrice {
    pub(super) usd_per_request: f64,
    pub(super) usd_per_byte: f64,
}

impl PriceFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file, and its valid values.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
        toml::from_str(&text).map_err(|e| bad_usage(&name, e.to_string().trim_end()))
    }

    /// Returns the prices of the tiers that name an entry, with their sources.
    ///
    /// # Errors
    /// An entry that is missing in the file; `plan` names it, `path` is the file.
    pub(super) fn tiers(
        &self,
        (plan, path): (&str, &Path),
        entries: &BTreeMap<String, Option<String>>,
    ) -> Result<(BTreeMap<String, TierPrice>, Vec<String>)> {
        let (mut tiers, mut sources) = (BTreeMap::new(), Vec::new());
        for (tier, entry) in entries.iter().filter_map(|(tier, entry)| Some((tier, entry.as_ref()?))) {
            let Some(price) = self.storage.get(entry) else {
                let known: Vec<&str> = self.storage.keys().map(String::as_str).collect();
                let why = format!(
                    "tiers.{tier}.price: {} has no [storage.{entry}]; it has {}",
                    path.display(),
                    known.join(", ")
                );
                return Err(bad_usage(plan, &why));
            };
            let own = TierPrice {
                usd_per_request: price.usd_per_1000_get_requests / 1000.0,
                usd_per_byte: (price.usd_per_gb_read + price.usd_per_gb_cross_zone) / GIB,
            };
            tiers.insert(tier.clone(), own);
            sources.push(format!("{tier}: {entry}, {}", price.source.text()));
        }
        Ok((tiers, sources))
    }

    /// Returns an instance by its name.
    ///
    /// # Errors
    /// An instance that is missing in the file.
    pub(super) fn instance(&self, (plan, path): (&str, &Path), name: &str) -> Result<&Instance> {
        self.instances.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.instances.keys().map(String::as_str).collect();
            let why = format!(
                "price.instance: {} has no [instances.\"{name}\"]; it has {}",
                path.display(),
                known.join(", ")
            );
            bad_usage(plan, &why)
        })
    }
}
