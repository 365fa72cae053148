//! Prices of reads, for a bench that reads tiers without a plan of servers.
//!
//! In: the prices' file, and the entries that tiers name. Out: dollars by tier, memory and instance, with their sources.

use super::file::{PriceFile, PricingError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Price of reading from a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ReadPrice {
    /// Dollars per request.
    pub usd_per_request: f64,
    /// Dollars per byte read, including transfer across zones.
    pub usd_per_byte: f64,
}

/// Prices of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ReadPrices {
    /// Prices of the tiers with an entry.
    pub tiers: BTreeMap<String, ReadPrice>,
    /// Dollars per GiB-hour of memory; `None` if the file has no such price.
    pub usd_per_gib_hour: Option<f64>,
    /// Dollars per hour of the instance; `None` if no instance was named.
    pub usd_per_hour: Option<f64>,
    /// Region, date and source of each price: tiers, then memory or the instance.
    pub sources: Vec<String>,
}

/// Reads the prices of tiers, and of an instance if one is named. `entries` are names of `[storage]`, by tier.
///
/// # Errors
/// The file cannot be read or parsed, or has no such entry or instance.
pub fn reads(
    path: &Path,
    instance: Option<&str>,
    entries: &BTreeMap<String, String>,
) -> Result<ReadPrices, PricingError> {
    let file = PriceFile::read(path)?;
    let (mut tiers, mut sources) = (BTreeMap::new(), Vec::new());
    for (tier, entry) in entries {
        let price = file.storage_entry(&format!("`{tier}` is priced as"), entry)?;
        let price = ReadPrice {
            usd_per_request: price.usd_per_request(),
            usd_per_byte: price.usd_per_byte(),
        };
        tiers.insert(tier.clone(), price);
        sources.push(file.storage_line(tier, entry));
    }
    let mut usd_per_hour = None;
    match instance {
        Some(name) => {
            let priced = file.instance(name)?;
            usd_per_hour = Some(priced.price.usd_per_hour);
            sources.push(priced.instance_line(name));
        }
        None => sources.extend(file.memory_line()),
    }
    Ok(ReadPrices {
        tiers,
        usd_per_gib_hour: file.memory.map(|memory| memory.price.usd_per_gib_hour),
        usd_per_hour,
        sources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_prices_of_tiers_come_with_their_sources() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml");
        let entries = |entry: &str| BTreeMap::from([("bucket".to_owned(), entry.to_owned())]);
        let prices = reads(&path, None, &entries("s3-standard")).unwrap();
        assert!(prices.tiers["bucket"].usd_per_request > 0.0 && prices.usd_per_gib_hour.is_some());
        assert!(
            prices.sources[0].starts_with("bucket: s3-standard: $"),
            "{:?}",
            prices.sources
        );
        assert!(
            prices.sources[1].starts_with("memory of a cache: $"),
            "{:?}",
            prices.sources
        );
        let priced = reads(&path, Some("aws/c7i.xlarge"), &entries("s3-standard")).unwrap();
        assert!(priced.usd_per_hour.is_some_and(|usd| usd > 0.0));
        let error = reads(&path, None, &entries("s3-gold")).unwrap_err().to_string();
        assert!(error.contains("no [storage.s3-gold]; it has "), "{error}");
        let error = reads(&path, Some("abacus"), &entries("s3-standard"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no [instances.\"abacus\"]"), "{error}");
    }
}
