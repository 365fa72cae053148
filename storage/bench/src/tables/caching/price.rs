//! Savings of a cache. In: the project's price file, calls to the origin with a cache and without. Out: dollars a month
//! per GB of the cache. A GB is 2^30 bytes and a month 730 hours, as in the price file.

use crate::plan::{Size, bad_usage};
use crate::tables::price_file::{GIB, PriceFile, TierPrice};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HOURS_A_MONTH: f64 = 730.0;

/// `[price]` of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrice {
    /// Price file, relative to the plan's folder.
    file: PathBuf,
    /// Look-ups per second, all day.
    lookups_per_s: f64,
    /// Table size to price; hit ratios at equal shares of the measured table are assumed to be equal.
    table: Size,
}

/// Prices of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Prices {
    pub(super) lookups_per_s: f64,
    pub(super) table_bytes: u64,
    /// Dollars a month per GB of memory; `None` if the file has no price.
    pub(super) usd_per_gb_month_of_memory: Option<f64>,
    /// Prices of the tiers that name an entry.
    pub(super) tiers: BTreeMap<String, TierPrice>,
    /// Region, month and source of each price.
    pub(super) sources: Vec<String>,
}

impl Prices {
    /// Reads the prices of a plan in `folder`; `entries` are the tiers' `price`s.
    ///
    /// # Errors
    /// The file and the key, and its valid values.
    pub(super) fn read(
        plan: &str,
        folder: &Path,
        raw: &RawPrice,
        entries: &BTreeMap<String, Option<String>>,
    ) -> Result<Self> {
        if !(1e-6..=1e9).contains(&raw.lookups_per_s) || raw.table.0 == 0 {
            return Err(bad_usage(
                plan,
                "price: lookups_per_s from 1e-6 to 1e9, and table above 0",
            ));
        }
        let path = folder.join(&raw.file);
        let file = PriceFile::read(&path)?;
        let (tiers, mut sources) = file.tiers((plan, &path), entries)?;
        if let Some(memory) = &file.memory {
            sources.push(format!("memory: {}", memory.source.text()));
        }
        Ok(Self {
            lookups_per_s: raw.lookups_per_s,
            table_bytes: raw.table.0,
            usd_per_gb_month_of_memory: file.memory.map(|memory| memory.usd_per_gib_hour * HOURS_A_MONTH),
            tiers,
            sources,
        })
    }

    /// Returns the dollars a month that a cache of `share` of the table saves per GB, before the price of its memory.
    /// `requests` and `bytes` are those of the origin per look-up, without the cache and with it.
    pub(super) fn saved(&self, tier: &str, share: f64, requests: (f64, f64), bytes: (f64, f64)) -> Option<f64> {
        let price = self.tiers.get(tier)?;
        let lookups = self.lookups_per_s * 3600.0 * HOURS_A_MONTH;
        let each = (requests.0 - requests.1) * price.usd_per_request + (bytes.0 - bytes.1) * price.usd_per_byte;
        Some(lookups * each / (share * self.table_bytes as f64 / GIB))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_by_hand() {
        let price = TierPrice {
            usd_per_request: 4e-7,
            usd_per_byte: 0.01 / GIB,
        };
        let prices = Prices {
            lookups_per_s: 1000.0,
            table_bytes: 64 << 30,
            usd_per_gb_month_of_memory: None,
            tiers: BTreeMap::from([("s3".to_owned(), price)]),
            sources: Vec::new(),
        };
        // 2.628e9 look-ups a month, half a request of 4e-7 saved for each, over 6.4 GB; no bytes saved.
        let saved = prices.saved("s3", 0.1, (1.0, 0.5), (512.0, 512.0)).unwrap();
        assert!((saved - 2.628e9 * 0.5 * 4e-7 / 6.4).abs() < 1e-9, "{saved}");
        // A block of 4 KiB per miss reads more bytes than no cache, which costs money.
        assert!(prices.saved("s3", 0.1, (1.0, 1.0), (512.0, 2048.0)).unwrap() < 0.0);
        assert_eq!(prices.saved("disk", 0.1, (1.0, 0.0), (1.0, 0.0)), None);
    }
}
