//! Costs of experiments. In: the project's price file, requests, bytes and rates. Out: dollars saved by a cache, and dollars per million
//! samples. A GB is 2^30 bytes and a month 730 hours, as in the price file.

use crate::plan::{Size, Source, check_within};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_instrument::prices::{BYTES_PER_GB, HOURS_PER_MONTH, ReadPrices};

/// `[price]` of a plan of caches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCachingPrice {
    /// Price file, relative to the plan's folder.
    file: PathBuf,
    /// Look-ups per second, around the clock.
    lookups_per_s: f64,
    /// Size of the table represented by the measured one, with the same cache shares.
    table: Size,
}

/// Prices of a run of caches.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CachingPrices {
    pub(super) lookups_per_s: f64,
    pub(super) table_bytes: u64,
    #[serde(flatten)]
    pub(super) reads: ReadPrices,
}

impl CachingPrices {
    /// Reads the file that a plan names. `entries` are the tiers' `price`s.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(super) fn read(source: &Source, raw: &RawCachingPrice, entries: &BTreeMap<String, String>) -> Result<Self> {
        check_within("price.lookups_per_s", raw.lookups_per_s, 1e-6, 1e9)
            .and_then(|()| check_within("price.table", raw.table.0, 1, u64::MAX))
            .map_err(|why| source.wrong(why))?;
        Ok(Self {
            lookups_per_s: raw.lookups_per_s,
            table_bytes: raw.table.0,
            reads: source.prices(&raw.file, None, entries)?,
        })
    }

    /// Returns dollars a month for a GB of memory; `None` if the file has no such price.
    pub(super) fn usd_per_gb_month_of_memory(&self) -> Option<f64> {
        self.reads.usd_per_gib_hour.map(|usd| usd * HOURS_PER_MONTH)
    }

    /// Returns dollars a month saved per GB of a cache of `share` of the table, before the price of its memory. `requests` and `bytes` are
    /// the origin's per look-up, without the cache and with it.
    pub(super) fn saved(&self, tier: &str, share: f64, requests: (f64, f64), bytes: (f64, f64)) -> Option<f64> {
        let price = self.reads.tiers.get(tier)?;
        let lookups = self.lookups_per_s * 3600.0 * HOURS_PER_MONTH;
        let each = (requests.0 - requests.1) * price.usd_per_request + (bytes.0 - bytes.1) * price.usd_per_byte;
        Some(lookups * each / (share * self.table_bytes as f64 / BYTES_PER_GB))
    }
}

/// `[price]` of an offline plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOfflinePrice {
    /// Price file, relative to the plan's folder.
    file: PathBuf,
    /// Instance that loads and infers.
    instance: String,
}

/// Prices of an offline run.
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

    /// Returns dollars for a million samples: the machine's price for their time, and the tier's requests and bytes.
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
    fn savings_by_hand() {
        let price = ReadPrice {
            usd_per_request: 4e-7,
            usd_per_byte: 0.01 / BYTES_PER_GB,
        };
        let prices = CachingPrices {
            lookups_per_s: 1000.0,
            table_bytes: 64 << 30,
            reads: ReadPrices {
                tiers: BTreeMap::from([("s3".to_owned(), price)]),
                ..ReadPrices::default()
            },
        };
        // 2.628e9 look-ups a month, half a request of 4e-7 saved for each, over 6.4 GB; no bytes saved.
        let saved = prices.saved("s3", 0.1, (1.0, 0.5), (512.0, 512.0)).unwrap();
        assert!((saved - 2.628e9 * 0.5 * 4e-7 / 6.4).abs() < 1e-9, "{saved}");
        // A block of 4 KiB per miss reads more bytes than no cache, which costs money.
        assert!(prices.saved("s3", 0.1, (1.0, 1.0), (512.0, 2048.0)).unwrap() < 0.0);
        assert_eq!(prices.saved("disk", 0.1, (1.0, 0.0), (1.0, 0.0)), None);
    }

    #[test]
    fn a_million_samples_by_hand() {
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
