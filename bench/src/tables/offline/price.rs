//! Price of a million samples. In: the project's price file, a rate, requests and bytes of a sample. Out: dollars.

use crate::plan::Source;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_instrument::prices::ReadPrices;

/// `[price]` of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOfflinePrice {
    /// The price file, relative to the plan's folder.
    file: PathBuf,
    /// Instance that loads and infers.
    instance: String,
}

/// Prices of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OfflinePrices {
    pub(super) instance: String,
    #[serde(flatten)]
    pub(super) reads: ReadPrices,
}

impl OfflinePrices {
    /// Reads the file that a plan names. `entries` are the tiers' `price`s.
    ///
    /// # Errors
    /// The file cannot be read, or lacks an entry.
    pub(super) fn read(source: &Source, raw: &RawOfflinePrice, entries: &BTreeMap<String, String>) -> Result<Self> {
        Ok(Self {
            instance: raw.instance.clone(),
            reads: source.prices(&raw.file, Some(&raw.instance), entries)?,
        })
    }

    /// Dollars for a million samples: the machine for as long as they take, and the tier's requests and bytes.
    pub(super) fn per_million(&self, tier: &str, per_s: f64, requests: f64, bytes: f64) -> Option<f64> {
        let tier = self.reads.tiers.get(tier).copied().unwrap_or_default();
        let hours = 1e6 / per_s / 3600.0;
        (per_s > 0.0).then_some(
            hours * self.reads.usd_per_hour.unwrap_or_default()
                + 1e6 * (requests * tier.usd_per_request + bytes * tier.usd_per_byte),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_instrument::prices::ReadPrice;

    #[test]
    fn dollars_by_hand() {
        let price = ReadPrice {
            usd_per_request: 4e-7,
            usd_per_byte: 1e-11,
        };
        let prices = OfflinePrices {
            instance: "x".to_owned(),
            reads: ReadPrices {
                usd_per_hour: Some(0.36),
                tiers: BTreeMap::from([("s3".to_owned(), price)]),
                ..ReadPrices::default()
            },
        };
        // A thousand per second: 1,000 s at 0.0001 $/s; a hundredth of a request and 500 bytes each.
        let found = prices.per_million("s3", 1000.0, 0.01, 500.0).unwrap();
        assert!(
            (found - (0.1 + 1e6 * (0.01 * 4e-7 + 500.0 * 1e-11))).abs() < 1e-12,
            "{found}"
        );
        assert!((prices.per_million("disk", 1000.0, 9.0, 9.0).unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(prices.per_million("s3", 0.0, 1.0, 1.0), None);
    }
}
