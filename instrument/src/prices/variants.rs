//! Costs of each variant of a lab.
//!
//! In: the price file, the variants, and the stored bytes. Out: the terms of each, and the source of every price. Knows
//! nothing of rates: `tierlab-analysis` computes a month at a demand.

use super::error::PricingError;
use super::file::{Instance, PriceFile, Priced, names};
use super::storage::{BYTES_PER_GB, Storage};
use std::path::Path;
use tierlab_analysis::record::{BySize, CostTerms, PricedVariant, PricedVariants, Pricing, StoredBytes};

/// Variant with its pricing inputs.
struct Found<'a> {
    variant: &'a PricedVariant,
    instance_name: &'a str,
    instance: &'a Priced<Instance>,
    /// Entry of `[storage]`; `None` if the instance's price covers it.
    storage: Option<(&'a str, &'a Priced<Storage>)>,
}

/// Adds the terms of every variant to the prices of a run, with the run's instance as default. Adds for each variant
/// also its request prices, byte prices and hourly storage cost, and the instances that support it, with the sources of
/// all prices.
///
/// # Errors
/// The file cannot be read or parsed, or has no price for an instance, a tier or an entry that a variant names; a
/// variant cannot run on its instance.
pub fn add_variants(
    pricing: &mut Pricing,
    path: &Path,
    variants: &[PricedVariant],
    data: StoredBytes,
) -> Result<(), PricingError> {
    let file = PriceFile::read(path)?;
    let default_instance = pricing.instance.clone();
    for variant in variants {
        let found = find(&file, path, variant, &default_instance)?;
        fits(&file, path, &found, data)?;
        let terms = terms_of(&file, path, &found, data)?;
        let name = &variant.name;
        if variant.servers > 1 {
            pricing.servers_by_variant.insert(name.clone(), variant.servers);
        }
        let is_paid = found.storage.is_some();
        let instances = file.instances_for(&variant.tier, is_paid);
        pricing.instances_by_tier.insert(name.clone(), instances);
        let hourly = found.storage.map_or(0.0, |(_, storage)| {
            storage.price.hourly(table_bytes(variant, data) + data.model_bytes)
        });
        for (prices, usd) in [
            (&mut pricing.usd_per_hour_by_tier, hourly),
            (&mut pricing.usd_per_request, terms.usd_per_request),
            (&mut pricing.usd_per_byte, terms.usd_per_byte),
        ] {
            if usd > 0.0 {
                prices.insert(name.clone(), usd);
            }
        }
        let mut sources = vec![found.instance.instance_line(found.instance_name)];
        let storage = found.storage.iter();
        sources.extend(storage.map(|(entry, _)| file.storage_line(&variant.tier, entry)));
        if terms.usd_per_instance_month > 0.0 && variant.staged_bytes > 0 {
            sources.extend(file.staging_line());
        }
        for source in sources {
            if !pricing.sources.contains(&source) {
                pricing.sources.push(source);
            }
        }
        pricing.terms_by_variant.insert(name.clone(), terms);
    }
    pricing.priced = Some(PricedVariants {
        variants: variants.to_vec(),
        stored: data,
    });
    Ok(())
}

fn find<'a>(
    file: &'a PriceFile,
    path: &Path,
    variant: &'a PricedVariant,
    default_instance: &'a str,
) -> Result<Found<'a>, PricingError> {
    let instance_name = variant.instance.as_deref().unwrap_or(default_instance);
    let instance = file.instance(path, instance_name)?;
    let storage = file.storage_price(path, &variant.name, variant.price.as_deref(), Some(&variant.tier))?;
    let storage = storage.map(|name| (name, &file.storage[name]));
    let impossible = |what| impossible(file, path, variant, what);
    if let Some(need) = file.lacks(&instance.price, &variant.tier, storage.is_some()) {
        let (tier, need) = (&variant.tier, need.key());
        return Err(impossible(format!(
            "tier {tier} needs {need}, which {instance_name} has not"
        )));
    }
    let memory_gib = instance.price.memory_gib;
    let cache_gib = variant.cache_bytes as f64 / BYTES_PER_GB;
    if memory_gib > 0.0 && cache_gib > memory_gib {
        return Err(impossible(format!(
            "its cache of {cache_gib:.1} GiB does not fit into the {memory_gib} GiB of {instance_name}"
        )));
    }
    Ok(Found {
        variant,
        instance_name,
        instance,
        storage,
    })
}

/// Checks that a variant's data fits on its instance's own disk, if the disk's size is known.
fn fits(file: &PriceFile, path: &Path, found: &Found<'_>, data: StoredBytes) -> Result<(), PricingError> {
    let Found { variant, instance, .. } = found;
    let of_tier = file
        .own_disk_bytes(&instance.price, &variant.tier, found.storage.is_some())
        .map(|_| table_bytes(variant, data) + data.model_bytes);
    let kept = of_tier.unwrap_or(0) + variant.staged_bytes;
    let disk_gb = instance.price.local_disk_gb;
    if disk_gb == 0.0 || kept as f64 <= disk_gb * 1e9 {
        return Ok(());
    }
    let (kept_gb, instance) = (kept as f64 / 1e9, found.instance_name);
    let what =
        format!("{kept_gb:.1} GB that it keeps on the instance's disk do not fit into the {disk_gb} GB of {instance}");
    Err(impossible(file, path, variant, what))
}

fn impossible(file: &PriceFile, path: &Path, variant: &PricedVariant, what: String) -> PricingError {
    PricingError::Impossible {
        path: path.to_owned(),
        variant: variant.name.clone(),
        what,
        known: names(&file.instances),
    }
}

fn table_bytes(variant: &PricedVariant, data: StoredBytes) -> u64 {
    variant.laid_out_bytes.unwrap_or(data.table_bytes)
}

/// Returns the terms that depend on the table's size; `None` without a table. A copy and a cache keep their share of
/// it.
fn by_size(file: &PriceFile, found: &Found<'_>, data: StoredBytes) -> Option<BySize> {
    let Found { variant, instance, .. } = found;
    let table_bytes = table_bytes(variant, data);
    if table_bytes == 0 {
        return None;
    }
    let servers = f64::from(variant.servers.max(1));
    let price = found.storage.map(|(_, Priced { price, .. })| price);
    let per_instance = price.is_some_and(|price| price.per_instance);
    let times_paid = if per_instance { servers } else { 1.0 };
    let month = price.map_or_else(Vec::new, |price| price.month_by_size(table_bytes, data.model_bytes));
    Some(BySize {
        table_bytes,
        usd_per_month: month
            .into_iter()
            .map(|(times, usd)| (times, times_paid * usd))
            .collect(),
        per_instance,
        copy_usd_per_month: copy_by_size(file, found, table_bytes as f64, servers),
        largest_times: largest_times(file, found, data, &instance.price),
    })
}

/// Returns the largest table that an instance holds, as a multiple of the measured table.
fn largest_times(file: &PriceFile, found: &Found<'_>, data: StoredBytes, instance: &Instance) -> Option<f64> {
    let Found { variant, .. } = found;
    let table_bytes = table_bytes(variant, data) as f64;
    let own_disk = file.own_disk_bytes(instance, &variant.tier, found.storage.is_some());
    // The table, if it lies on the disk, and the copy's share of it.
    let mut on_disk = own_disk.map_or(0.0, |_| table_bytes);
    if instance.local_disk {
        on_disk += (variant.staged_bytes as f64).min(table_bytes);
    }
    let models = own_disk.map_or(0.0, |_| data.model_bytes as f64);
    let by_disk = (instance.local_disk_gb * 1e9 - models) / on_disk;
    let by_memory = instance.memory_gib * BYTES_PER_GB / variant.cache_bytes as f64;
    // Unknown or unused capacities are no bound.
    [(instance.local_disk_gb, by_disk), (instance.memory_gib, by_memory)]
        .into_iter()
        .filter(|(size, times)| *size > 0.0 && times.is_finite())
        .map(|(_, times)| times)
        .reduce(f64::min)
}

/// Returns the cost of the instances' copy disks over the table's size, if the instance has no disk of its own. A disk is
/// as large as the copy ([`grown`]).
fn copy_by_size(file: &PriceFile, found: &Found<'_>, table_bytes: f64, servers: f64) -> Vec<(f64, f64)> {
    let Found { variant, instance, .. } = found;
    let staging = file
        .staging
        .as_ref()
        .filter(|_| variant.staged_bytes > 0 && !instance.price.local_disk);
    let Some(staging) = staging else {
        return Vec::new();
    };
    let usd = |times: f64| {
        let bytes = grown(variant.staged_bytes, table_bytes, times);
        (times, servers * bytes / BYTES_PER_GB * staging.price.usd_per_gb_month)
    };
    let bend = (variant.staged_bytes as f64 / table_bytes).max(1.0);
    [0.0, 1.0, bend, 2.0 * bend]
        .map(usd)
        .into_iter()
        .fold(Vec::new(), |mut curve, point| {
            if curve.last().is_none_or(|(times, _)| *times < point.0) {
                curve.push(point);
            }
            curve
        })
}

/// Returns the bytes of a copy that keeps its share of a table `times` as large; a copy with room beyond the table
/// grows when that room is used up.
#[must_use]
pub fn grown(staged_bytes: u64, table_bytes: f64, times: f64) -> f64 {
    let staged = staged_bytes as f64;
    if staged < table_bytes {
        staged * times
    } else {
        staged.max(table_bytes * times)
    }
}

fn terms_of(file: &PriceFile, path: &Path, found: &Found<'_>, data: StoredBytes) -> Result<CostTerms, PricingError> {
    let Found { variant, instance, .. } = found;
    let servers = f64::from(variant.servers.max(1));
    let mut usd_per_instance_month = 0.0;
    if variant.staged_bytes > 0 && !instance.price.local_disk {
        let Some(staging) = &file.staging else {
            let what = format!(
                "variant `{}` keeps a copy on a disk, which {} has not, and [staging] does not say what one costs; add it with \
                 `usd_per_gb_month`, or choose an instance with `local_disk = true`",
                variant.name, found.instance_name
            );
            return Err(PricingError::invalid(path, what));
        };
        usd_per_instance_month += variant.staged_bytes as f64 / BYTES_PER_GB * staging.price.usd_per_gb_month;
    }
    let mut fixed_usd_per_month = Vec::new();
    let (mut usd_per_request, mut usd_per_byte) = (0.0, 0.0);
    if let Some((_, Priced { price, .. })) = found.storage {
        let month = price.month(table_bytes(variant, data) + data.model_bytes);
        if price.per_instance {
            usd_per_instance_month += month.iter().map(|(_, usd)| usd).sum::<f64>();
        } else {
            fixed_usd_per_month.extend(month.into_iter().map(|(name, usd)| (name.to_owned(), usd)));
        }
        (usd_per_request, usd_per_byte) = (price.usd_per_request(), price.usd_per_byte());
    }
    Ok(CostTerms {
        instance: found.instance_name.to_owned(),
        usd_per_instance_hour: servers * instance.price.usd_per_hour,
        usd_per_instance_month: servers * usd_per_instance_month,
        fixed_usd_per_month,
        usd_per_request,
        usd_per_byte,
        by_size: by_size(file, found, data),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    const PROVENANCE: &str =
        "provider = \"P\"\nregion = \"r\"\nas_of = \"2026-01\"\nchecked = true\nsource = \"https://example.org\"\n";

    /// Writes a file of entries, each with a header and its keys.
    fn file(entries: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        let mut text = String::new();
        for (head, keys) in entries {
            text += &format!("[{head}]\n{keys}\n{PROVENANCE}");
        }
        text += "[tiers]\ns3 = \"blobs\"\nnvme = \"included\"\n[needs]\nnvme = [\"local-disk\"]\n";
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    const PLAIN: (&str, &str) = ("instances.plain", "usd_per_hour = 1.0\nmemory_gib = 8");
    const DISK: (&str, &str) = (
        "instances.disk",
        "usd_per_hour = 2.0\nmemory_gib = 8\nlocal_disk = true",
    );
    const BLOBS: (&str, &str) = (
        "storage.blobs",
        "usd_per_1000_get_requests = 0.4\nusd_per_gb_read = 1.073741824\nusd_per_gb_month = 0.02",
    );
    const VOLUME: (&str, &str) = (
        "storage.volume",
        "usd_per_gb_month = 0.1\nincluded_iops = 3000\niops = 5000\nusd_per_provisioned_iops_month = 0.005\nper_instance = true",
    );
    const STAGING: (&str, &str) = ("staging", "usd_per_gb_month = 0.1");
    const GB: u64 = 1 << 30;
    const DATA: StoredBytes = StoredBytes {
        table_bytes: 90 * GB,
        model_bytes: 10 * GB,
    };

    fn terms(
        path: &Path,
        variants: &[PricedVariant],
        default_instance: &str,
        data: StoredBytes,
    ) -> Result<BTreeMap<String, CostTerms>, PricingError> {
        let mut pricing = crate::prices::load(path, default_instance, &[])?;
        add_variants(&mut pricing, path, variants, data)?;
        Ok(pricing.terms_by_variant)
    }

    fn variant(tier: &str) -> PricedVariant {
        PricedVariant {
            name: "v".into(),
            tier: tier.into(),
            ..PricedVariant::default()
        }
    }

    fn terms_in(path: &Path, variant: PricedVariant) -> Result<CostTerms, PricingError> {
        Ok(terms(path, &[variant], "plain", DATA)?.remove("v").unwrap())
    }

    #[test]
    fn a_service_is_paid_by_capacity_requests_and_bytes() {
        let (_folder, path) = file(&[PLAIN, BLOBS]);
        let found = terms_in(&path, variant("s3")).unwrap();
        assert_eq!((found.instance.as_str(), found.usd_per_instance_hour), ("plain", 1.0));
        assert_eq!(found.fixed_usd_per_month, [("capacity".to_owned(), 2.0)]);
        assert!((found.usd_per_request - 4e-4).abs() < 1e-15 && (found.usd_per_byte - 1e-9).abs() < 1e-20);
        assert_eq!(found.usd_per_instance_month, 0.0);
    }

    #[test]
    fn a_table_in_another_layout_is_paid_by_what_it_takes_there() {
        let (_folder, path) = file(&[PLAIN, BLOBS]);
        let laid_out = PricedVariant {
            laid_out_bytes: Some(190 * GB),
            ..variant("s3")
        };
        let found = terms_in(&path, laid_out).unwrap();
        assert_eq!(found.fixed_usd_per_month, [("capacity".to_owned(), 4.0)]);
    }

    #[test]
    fn a_copy_is_paid_for_where_the_instance_has_no_disk() {
        let (_folder, path) = file(&[PLAIN, DISK, BLOBS, STAGING]);
        let staged = PricedVariant {
            staged_bytes: 30 * GB,
            ..variant("s3")
        };
        assert!((terms_in(&path, staged.clone()).unwrap().usd_per_instance_month - 3.0).abs() < 1e-12);
        let on_disk = PricedVariant {
            instance: Some("disk".into()),
            ..staged.clone()
        };
        let found = terms_in(&path, on_disk).unwrap();
        assert_eq!((found.usd_per_instance_hour, found.usd_per_instance_month), (2.0, 0.0));
        let (_folder, path) = file(&[PLAIN, BLOBS]);
        let error = terms_in(&path, staged).unwrap_err().to_string();
        assert!(error.contains("[staging]") && error.contains("`v`"), "{error}");
    }

    #[test]
    fn a_volume_of_each_instance_is_paid_for_each() {
        let (_folder, path) = file(&[PLAIN, BLOBS, VOLUME]);
        let on_volume = PricedVariant {
            price: Some("volume".into()),
            ..variant("nvme")
        };
        // The volume replaces the local disk that the tier needs.
        let found = terms_in(&path, on_volume).unwrap();
        assert!((found.usd_per_instance_month - 20.0).abs() < 1e-9, "{found:?}");
        assert!(found.fixed_usd_per_month.is_empty());
    }

    #[test]
    fn what_cannot_be_had_or_is_not_known_is_named() {
        let (_folder, path) = file(&[PLAIN, DISK, BLOBS]);
        let change = |change: fn(&mut PricedVariant)| {
            let mut variant = variant("s3");
            change(&mut variant);
            terms_in(&path, variant).unwrap_err().to_string()
        };
        for (error, parts) in [
            (change(|v| v.tier = "nvme".into()), ["needs local-disk", "plain"]),
            (change(|v| v.tier = "tape".into()), ["[tiers]", "`tape`"]),
            (change(|v| v.price = Some("tape".into())), ["`v`", "[storage.tape]"]),
            (change(|v| v.instance = Some("huge".into())), ["huge", "disk, plain"]),
            (change(|v| v.cache_bytes = 9 * GB), ["9.0 GiB", "8 GiB of plain"]),
        ] {
            for part in parts {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        let (_folder, path) = file(&[PLAIN, BLOBS, ("storage.odd", "iops = 5")]);
        let error = terms_in(&path, variant("s3")).unwrap_err().to_string();
        assert!(error.contains("storage.odd.iops"), "{error}");
    }

    #[test]
    fn a_table_that_its_disk_cannot_hold_is_refused_and_the_largest_that_it_can_is_known() {
        let small = (
            "instances.small",
            "usd_per_hour = 1.5\nmemory_gib = 8\nlocal_disk = true\nlocal_disk_gb = 50",
        );
        let large = (
            "instances.large",
            "usd_per_hour = 3.0\nmemory_gib = 8\nlocal_disk = true\nlocal_disk_gb = 1000",
        );
        let (_folder, path) = file(&[PLAIN, BLOBS, small, large]);
        let on = |instance: &str, tier: &str, staged_bytes| {
            let variant = PricedVariant {
                instance: Some(instance.into()),
                staged_bytes,
                ..variant(tier)
            };
            terms_in(&path, variant)
        };
        let error = on("small", "nvme", 0).unwrap_err().to_string();
        assert!(
            error.contains("107.4 GB") && error.contains("50 GB of small"),
            "{error}"
        );
        let error = on("small", "s3", 60 * GB).unwrap_err().to_string();
        assert!(error.contains("64.4 GB"), "a copy lies there too: {error}");
        let found = on("large", "nvme", 0).unwrap().by_size.unwrap();
        assert!(
            (found.largest() - (1e12 - 10.0 * BYTES_PER_GB) / (90.0 * BYTES_PER_GB)).abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(found.at(5.0, 1.0), 0.0);
        let found = on("plain", "s3", 0).unwrap().by_size.unwrap();
        assert_eq!(found.largest_times, None);
        // A table of 90 GB at three times its size, and 10 GB of models, once for all instances.
        assert!((found.at(3.0, 4.0) - 280.0 * 0.02).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn copies_and_caches_grow_with_the_table() {
        let disk = (
            "instances.disk",
            "usd_per_hour = 1.5\nmemory_gib = 8\nlocal_disk = true\nlocal_disk_gb = 1000",
        );
        let (_folder, path) = file(&[PLAIN, BLOBS, STAGING, disk]);
        let sized = |instance: &str, staged_bytes, cache_bytes| {
            let variant = PricedVariant {
                instance: Some(instance.into()),
                staged_bytes,
                cache_bytes,
                ..variant("s3")
            };
            terms_in(&path, variant).unwrap().by_size.unwrap()
        };
        // A ninth of the table is in the copy; a copy of 180 GB has room for twice the table.
        let times = |bytes: u64| 1e12 / bytes as f64;
        assert!((sized("disk", 10 * GB, 0).largest() - times(10 * GB)).abs() < 1e-9);
        assert!((sized("disk", 180 * GB, 0).largest() - times(90 * GB)).abs() < 1e-9);
        assert!(
            (sized("disk", 10 * GB, 2 * GB).largest() - 4.0).abs() < 1e-9,
            "8 GiB of memory"
        );
        // On a paid disk, 0.1 dollars a GB for each of three instances; the rest is the service's capacity.
        let copy = |of: &BySize, times: f64| (of.at(times, 3.0) - (90.0 * times + 10.0) * 0.02) / 0.3;
        let part = sized("plain", 10 * GB, 0);
        let whole = sized("plain", 180 * GB, 0);
        for (times, of_part, of_whole) in [(1.0, 10.0, 180.0), (2.0, 20.0, 180.0), (5.0, 50.0, 450.0)] {
            assert!((copy(&part, times) - of_part).abs() < 1e-9, "{part:?}");
            assert!((copy(&whole, times) - of_whole).abs() < 1e-9, "{whole:?}");
        }
    }

    #[test]
    fn a_runs_prices_have_every_variant_with_its_sources() {
        let (_folder, path) = file(&[PLAIN, DISK, BLOBS, STAGING]);
        let mut pricing = super::super::load(&path, "plain", &[]).unwrap();
        let staged = PricedVariant {
            name: "s3 staged".into(),
            staged_bytes: GB,
            ..variant("s3")
        };
        let local = PricedVariant {
            name: "local".into(),
            instance: Some("disk".into()),
            ..variant("nvme")
        };
        add_variants(&mut pricing, &path, &[staged, local], DATA).unwrap();
        assert_eq!(pricing.terms_by_variant.len(), 2);
        assert_eq!(pricing.instances_by_tier["local"], ["disk"]);
        assert!(pricing.usd_per_request.contains_key("s3 staged") && !pricing.usd_per_request.contains_key("local"));
        for part in [
            "plain: $1/h",
            "disk: $2/h",
            "s3: blobs: ",
            "staging disk: $0.1 per GB-month",
        ] {
            let count = pricing.sources.iter().filter(|line| line.starts_with(part)).count();
            assert_eq!(count, 1, "{part}: {:?}", pricing.sources);
        }
    }

    #[test]
    fn a_month_of_every_shipped_entry_is_what_its_provider_would_bill() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml");
        // 100 GB, on an instance without a disk.
        for (entry, fixed, per_instance) in [
            ("s3-standard", 2.3, 0.0),
            ("s3-express-one-zone", 11.0, 0.0),
            ("efs-elastic", 30.0, 0.0),
            // 5 MB/s come with 100 GB.
            ("efs-bursting", 30.0, 0.0),
            ("efs-provisioned", 30.0 + 5.0 * 6.0, 0.0),
            ("gp3", 0.0, 8.0),
            ("fsx-openzfs-small", 0.0307 * 730.0, 0.0),
            ("fsx-openzfs", 9.0 + 64.0 * 0.26, 0.0),
            ("fsx-lustre", 174.0, 0.0),
            ("included", 0.0, 0.0),
        ] {
            let variant = PricedVariant {
                price: Some(entry.into()),
                ..variant("nfs")
            };
            let found = terms(&path, &[variant], "aws/c7i.xlarge", DATA).unwrap();
            let month: f64 = found["v"].fixed_usd_per_month.iter().map(|(_, usd)| usd).sum();
            assert!((month - fixed).abs() < 1e-9, "{entry}: {month}");
            assert!(
                (found["v"].usd_per_instance_month - per_instance).abs() < 1e-9,
                "{entry}"
            );
        }
    }
}
