//! From `prices.toml` to the prices of one run.
//!
//! In: the file, and the instance and the tiers of a plan, or the variants of a lab. Out: [`Pricing`], or an error that names
//! the missing or invalid key. Independent of measurements.
//!
//! - `file`: the file's format; `storage`: charges of a service, and their monthly sum
//! - [`add_variants`]: costs of each variant of a lab
//! - [`reads`]: prices of reads alone

mod file;
mod storage;
mod variants;

pub use storage::{BYTES_PER_GB, HOURS_PER_MONTH};
pub use variants::{add_variants, scaled_copy_bytes};

use file::PriceFile;
pub use file::{INCLUDED, PricingError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_analysis::record::Pricing;

/// Reads the prices of one instance type and some tiers.
///
/// # Errors
/// The file cannot be read or parsed, holds an unknown key or a negative price, or has no price for the instance or
/// for a tier.
pub fn load(path: &Path, instance: &str, tiers: &[String]) -> Result<Pricing, PricingError> {
    load_file(&PriceFile::read(path)?, instance, tiers)
}

fn load_file(file: &PriceFile, instance: &str, tiers: &[String]) -> Result<Pricing, PricingError> {
    let priced = file.instance(instance)?;
    let instances = file.instances.iter().map(|(name, instance)| instance.named(name));
    let mut pricing = Pricing {
        instance: instance.to_owned(),
        usd_per_hour: priced.price.usd_per_hour,
        usd_per_gib_hour: file.memory.as_ref().map_or(0.0, |memory| memory.price.usd_per_gib_hour),
        instances: instances.collect(),
        sources: vec![priced.instance_line(instance)],
        ..Pricing::default()
    };
    pricing.sources.extend(file.memory_line());
    for tier in tiers {
        let storage = file.storage_price(tier, None, Some(tier))?;
        add_tier(&mut pricing, file, tier, storage);
    }
    Ok(pricing)
}

/// Reads the prices of one instance type and of an existing server. `price`, an entry of `[storage]` or `included`, is
/// the price of its storage; without `price` and tier, only its instance costs.
///
/// # Errors
/// Those of [`load`].
pub fn load_server(
    path: &Path,
    instance: &str,
    tier: Option<&str>,
    price: Option<&str>,
    label: &str,
) -> Result<Pricing, PricingError> {
    let file = PriceFile::read(path)?;
    let mut pricing = load_file(&file, instance, &[])?;
    let storage = file.storage_price(label, price, tier)?;
    add_tier(&mut pricing, &file, label, storage);
    Ok(pricing)
}

/// Adds the storage price of a tier, and the instances that support it.
fn add_tier(pricing: &mut Pricing, file: &PriceFile, tier: &str, storage: Option<&str>) {
    let has_tier = |name: &&String| {
        file.lacks(&file.instances[*name].price, tier, storage.is_some())
            .is_none()
    };
    let instances = file.instances.keys().filter(has_tier).cloned();
    pricing.instances_by_tier.insert(tier.to_owned(), instances.collect());
    let Some(storage) = storage else { return };
    let entry = &file.storage[storage].price;
    for (prices, usd) in [
        (&mut pricing.usd_per_hour_by_tier, entry.hourly(0.0)),
        (&mut pricing.usd_per_request, entry.usd_per_request()),
        (&mut pricing.usd_per_byte, entry.usd_per_byte()),
    ] {
        if usd > 0.0 {
            prices.insert(tier.to_owned(), usd);
        }
    }
    add_source(pricing, file.storage_line(tier, storage));
}

fn add_source(pricing: &mut Pricing, source: String) {
    if !pricing.sources.contains(&source) {
        pricing.sources.push(source);
    }
}

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
    let priced = instance.map(|name| file.instance(name)).transpose()?;
    match instance.zip(priced) {
        Some((name, priced)) => sources.push(priced.instance_line(name)),
        None => sources.extend(file.memory_line()),
    }
    Ok(ReadPrices {
        tiers,
        usd_per_gib_hour: file.memory.as_ref().map(|memory| memory.price.usd_per_gib_hour),
        usd_per_hour: priced.map(|priced| priced.price.usd_per_hour),
        sources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn shipped() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml")
    }

    fn tiers(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn load_text(text: &str, tier: &str) -> Result<Pricing, PricingError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.toml");
        std::fs::write(&path, text).unwrap();
        load(&path, "box", &tiers(&[tier]))
    }

    const FILE: &str = r#"
        [instances.box]
        usd_per_hour = 1.5
        provider = "P"
        region = "r"
        as_of = "2026-01"
        checked = true
        source = "https://example.org/a"
        [storage.blobs]
        usd_per_1000_get_requests = 0.4
        usd_per_gb_read = 2.147483648
        usd_per_hour = 0.25
        provider = "P"
        region = "r"
        as_of = "2026-02"
        checked = false
        source = "https://example.org/b"
        [tiers]
        s3 = "blobs"
        nvme = "included"
        nfs = "gone"
    "#;

    #[test]
    fn units_become_requests_and_bytes() {
        let pricing = load_text(FILE, "s3").unwrap();
        assert_eq!(pricing.usd_per_hour, 1.5);
        assert!((pricing.usd_per_request["s3"] - 4e-4).abs() < 1e-15);
        assert!((pricing.usd_per_byte["s3"] - 2e-9).abs() < 1e-20);
        assert_eq!(pricing.usd_per_hour_by_tier["s3"], 0.25);
        let by_month = FILE.replace("usd_per_hour = 0.25", "usd_per_month = 73.0");
        let usd_per_hour = load_text(&by_month, "s3").unwrap().usd_per_hour_by_tier["s3"];
        assert!((usd_per_hour - 0.1).abs() < 1e-12, "{usd_per_hour}");
        assert_eq!(
            pricing.sources[0],
            "box: $1.5/h, P r, as of 2026-01, https://example.org/a"
        );
        assert!(pricing.sources[1].contains("as of 2026-02 (from memory, not checked)"));
    }

    #[test]
    fn an_included_tier_costs_nothing_and_an_unnamed_one_is_an_error() {
        let pricing = load_text(FILE, "nvme").unwrap();
        assert!(pricing.usd_per_request.is_empty() && pricing.usd_per_byte.is_empty() && pricing.sources.len() == 1);
        let error = load_text(FILE, "tape").unwrap_err().to_string();
        assert!(
            error.contains("no price of tier `tape`") && error.contains("blobs"),
            "{error}"
        );
        let error = load_text(FILE, "nfs").unwrap_err().to_string();
        assert!(error.contains("tiers.nfs names `gone`"), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        let error = load_text(&FILE.replace("usd_per_hour = 1.5", "usd_per_hours = 1.5"), "s3").unwrap_err();
        assert!(error.to_string().contains("usd_per_hours"), "{error}");
        let error = load_text(&FILE.replace("= 0.4", "= -0.4"), "s3").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("storage.blobs.usd_per_1000_get_requests is -0.4"),
            "{error}"
        );
        let error = load_text(&FILE.replace("[instances.box]", "[instances.other]"), "s3").unwrap_err();
        assert!(error.to_string().contains("choose one of other"), "{error}");
        assert!(matches!(
            load(Path::new("/no/such"), "box", &[]),
            Err(PricingError::Invalid(_))
        ));
    }

    #[test]
    fn a_tier_is_had_on_the_instances_that_have_what_it_needs() {
        let text = format!(
            "{FILE}[needs]\nnvme = [\"local-disk\"]\n[memory]\nusd_per_gib_hour = 0.004\nprovider = \"P\"\nregion = \"r\"\n\
             as_of = \"2026-03\"\nchecked = false\nsource = \"https://example.org/m\"\n"
        );
        let pricing = load_text(&text, "nvme").unwrap();
        assert_eq!(pricing.instances_by_tier["nvme"], [""; 0]);
        assert_eq!(pricing.usd_per_gib_hour, 0.004);
        assert!(pricing.sources[1].contains("per GiB-hour, P r, as of 2026-03 (from memory, not checked)"));
        assert_eq!(load_text(&text, "s3").unwrap().instances_by_tier["s3"], ["box"]);
        let with_disk = text.replace("usd_per_hour = 1.5", "usd_per_hour = 1.5\nlocal_disk = true");
        assert_eq!(
            load_text(&with_disk, "nvme").unwrap().instances_by_tier["nvme"],
            ["box"]
        );
        // A paid volume replaces the disk, as in the costs of variants.
        let on_volume = text.replace("nvme = \"included\"", "nvme = \"blobs\"");
        assert_eq!(
            load_text(&on_volume, "nvme").unwrap().instances_by_tier["nvme"],
            ["box"]
        );
        let error = load_text(&text.replace("local-disk", "tape-robot"), "nvme").unwrap_err();
        assert!(error.to_string().contains("tape-robot"), "{error}");
    }

    #[test]
    fn the_shipped_prices_load_for_every_instance_and_tier() {
        let text = std::fs::read_to_string(shipped()).unwrap();
        let file: PriceFile = toml::from_str(&text).unwrap();
        assert!(file.instances.len() >= 3);
        let all: Vec<String> = file.tiers.keys().cloned().collect();
        for (instance, priced) in &file.instances {
            let pricing = load(&shipped(), instance, &all).unwrap();
            assert!(pricing.usd_per_hour > 0.0 && pricing.usd_per_request["s3"] > 0.0);
            assert!(priced.price.memory_gib > 0.0 && pricing.usd_per_gib_hour > 0.0);
            let had_on = |tier: &str| pricing.instances_by_tier[tier].len();
            assert!(0 < had_on("gds") && had_on("gds") < had_on("nvme") && had_on("nvme") < had_on("s3"));
            assert!(priced.provenance.source.starts_with("https://") && !priced.provenance.as_of.is_empty());
        }
        for priced in file.storage.values() {
            assert!(priced.provenance.source.starts_with("https://") && !priced.provenance.as_of.is_empty());
        }
    }

    #[test]
    fn shipped_prices_of_tiers_come_with_their_sources() {
        let path = shipped();
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
