//! Costs of each variant of a lab.
//!
//! In: the price file, the variants, and the stored bytes. Out: the terms of each, and the source of every price. Independent of
//! rates: `tierlab-analysis` computes a month at a demand.

use super::add_source;
use super::file::{Instance, PriceFile, Priced, PricingError};
use super::storage::{BYTES_PER_GB, Storage};
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_analysis::record::{BySize, CostTerms, PricedVariant, PricedVariants, Pricing, StoredBytes};

/// Variant with its pricing inputs.
struct VariantInputs<'a> {
    file: &'a PriceFile,
    variant: &'a PricedVariant,
    instance_name: &'a str,
    instance: &'a Priced<Instance>,
    /// Entry of `[storage]`; `None` if the instance's price covers it.
    storage: Option<(&'a str, &'a Storage)>,
    servers: f64,
    table_bytes: u64,
    model_bytes: u64,
}

/// Adds the terms of every variant to the prices of a run, with the run's instance as default. Adds for each variant
/// also the instances that support it, with the sources of all prices.
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
        let on = |instance_name| VariantInputs::find(&file, variant, instance_name, data);
        let inputs = on(variant.instance.as_deref().unwrap_or(&default_instance))?;
        let terms = inputs.terms()?;
        let name = &variant.name;
        if variant.servers > 1 {
            pricing.servers_by_variant.insert(name.clone(), variant.servers);
        }
        let supported = file.instances.keys();
        let supported = supported.filter_map(|instance| Some((instance, on(instance).ok()?.terms().ok()?)));
        let months = supported.map(|(instance, terms)| (instance.clone(), terms.usd_per_instance_month));
        let months: BTreeMap<String, f64> = months.collect();
        let instances = months.keys().cloned().collect();
        pricing.instances_by_tier.insert(name.clone(), instances);
        add_source(pricing, inputs.instance.instance_line(inputs.instance_name));
        if let Some((entry, _)) = inputs.storage {
            add_source(pricing, file.storage_line(&variant.tier, entry));
        }
        if variant.staged_bytes > 0 {
            let prices = months
                .keys()
                .filter_map(|instance| on(instance).ok()?.copy_price().ok()?);
            let is_paid = prices.count() > 0;
            let staging = file.staging_line().filter(|_| is_paid);
            staging.into_iter().for_each(|line| add_source(pricing, line));
            pricing.usd_per_month_by_instance.insert(name.clone(), months);
        }
        pricing.terms_by_variant.insert(name.clone(), terms);
    }
    pricing.priced = Some(PricedVariants {
        variants: variants.to_vec(),
        stored: data,
    });
    Ok(())
}

impl<'a> VariantInputs<'a> {
    fn find(
        file: &'a PriceFile,
        variant: &'a PricedVariant,
        instance_name: &'a str,
        data: StoredBytes,
    ) -> Result<Self, PricingError> {
        let instance = file.instance(instance_name)?;
        let storage = file.storage_price(&variant.name, variant.price.as_deref(), Some(&variant.tier))?;
        let inputs = Self {
            file,
            variant,
            instance_name,
            instance,
            storage: storage.map(|name| (name, &file.storage[name].price)),
            servers: f64::from(variant.servers.max(1)),
            table_bytes: variant.laid_out_bytes.unwrap_or(data.table_bytes),
            model_bytes: data.model_bytes,
        };
        if let Some(need) = file.lacks(&instance.price, &variant.tier, storage.is_some()) {
            let what = format!("tier {} needs {need}, which {instance_name} lacks", variant.tier);
            return Err(file.impossible(&variant.name, &what));
        }
        let memory_gib = instance.price.memory_gib;
        let cache_gib = variant.cache_bytes as f64 / BYTES_PER_GB;
        if memory_gib > 0.0 && cache_gib > memory_gib {
            let what = format!("its cache of {cache_gib:.1} GiB exceeds the {memory_gib} GiB of {instance_name}");
            return Err(file.impossible(&variant.name, &what));
        }
        inputs.check_disk_size()?;
        Ok(inputs)
    }

    fn stored_bytes(&self) -> u64 {
        self.table_bytes + self.model_bytes
    }

    /// True if the table is on the instance's own disk, whose size is known.
    fn is_on_own_disk(&self) -> bool {
        let is_unpaid = self.file.needs_disk(&self.variant.tier) && self.storage.is_none();
        is_unpaid && self.instance.price.local_disk_gb > 0.0
    }

    /// Price per GB-month of the disk for the copy, if there is a copy and the instance has no disk of its own.
    fn copy_price(&self) -> Result<Option<f64>, PricingError> {
        if self.variant.staged_bytes == 0 || self.instance.price.local_disk {
            return Ok(None);
        }
        let staging = self.file.staging.as_ref().ok_or_else(|| {
            self.file.invalid(&format!(
                "variant `{}` keeps a copy on a disk, but {} has none and [staging] is missing: add it with \
                `usd_per_gb_month`, or choose an instance with `local_disk = true`",
                self.variant.name, self.instance_name
            ))
        })?;
        Ok(Some(staging.price.usd_per_gb_month))
    }

    /// Checks that a variant's data fits on its instance's own disk, if the disk's size is known.
    fn check_disk_size(&self) -> Result<(), PricingError> {
        let of_tier = if self.is_on_own_disk() { self.stored_bytes() } else { 0 };
        let on_disk_gb = (of_tier + self.variant.staged_bytes) as f64 / 1e9;
        let (disk_gb, instance) = (self.instance.price.local_disk_gb, self.instance_name);
        if disk_gb == 0.0 || on_disk_gb <= disk_gb {
            return Ok(());
        }
        let what = format!("its {on_disk_gb:.1} GB on the instance's disk exceed the {disk_gb} GB of {instance}");
        Err(self.file.impossible(&self.variant.name, &what))
    }

    fn terms(&self) -> Result<CostTerms, PricingError> {
        let copy_price = self.copy_price()?;
        let mut terms = CostTerms {
            instance: self.instance_name.to_owned(),
            usd_per_instance_hour: self.servers * self.instance.price.usd_per_hour,
            by_size: self.by_size(copy_price),
            ..CostTerms::default()
        };
        let copy_gb = self.variant.staged_bytes as f64 / BYTES_PER_GB;
        let mut usd_per_instance_month = copy_price.map_or(0.0, |usd| copy_gb * usd);
        if let Some((_, price)) = self.storage {
            let month = price.month(self.stored_bytes());
            if price.per_instance {
                usd_per_instance_month += month.iter().map(|(_, usd)| usd).sum::<f64>();
            } else {
                let month = month.into_iter().map(|(name, usd)| (name.to_owned(), usd));
                terms.fixed_usd_per_month = month.collect();
            }
            (terms.usd_per_request, terms.usd_per_byte) = (price.usd_per_request(), price.usd_per_byte());
        }
        terms.usd_per_instance_month = self.servers * usd_per_instance_month;
        Ok(terms)
    }

    /// Returns the terms that depend on the table's size; `None` without a table. A copy and a cache keep their share of
    /// the table.
    fn by_size(&self, copy_price: Option<f64>) -> Option<BySize> {
        let table_bytes = Some(self.table_bytes).filter(|bytes| *bytes > 0)?;
        let price = self.storage.map(|(_, price)| price);
        let per_instance = price.is_some_and(|price| price.per_instance);
        let times_paid = if per_instance { self.servers } else { 1.0 };
        let month = price.map(|price| price.month_by_size(table_bytes, self.model_bytes));
        let month = month.into_iter().flatten();
        Some(BySize {
            table_bytes,
            usd_per_month: month.map(|(times, usd)| (times, times_paid * usd)).collect(),
            per_instance,
            copy_usd_per_month: copy_price.map_or_else(Vec::new, |usd| self.copy_by_size(usd)),
            largest_times: self.largest_times(),
        })
    }

    /// Returns the largest table that an instance holds, as a multiple of the measured table.
    fn largest_times(&self) -> Option<f64> {
        let (instance, variant, table_bytes) = (&self.instance.price, self.variant, self.table_bytes as f64);
        // The table, if it lies on the disk, and the copy's share of it.
        let (mut on_disk, models) = match self.is_on_own_disk() {
            true => (table_bytes, self.model_bytes as f64),
            false => (0.0, 0.0),
        };
        if instance.local_disk {
            on_disk += (variant.staged_bytes as f64).min(table_bytes);
        }
        let by_disk = (instance.local_disk_gb * 1e9 - models) / on_disk;
        let by_memory = instance.memory_gib * BYTES_PER_GB / variant.cache_bytes as f64;
        // Unknown or unused capacities set no bound.
        let bounds = [(instance.local_disk_gb, by_disk), (instance.memory_gib, by_memory)].into_iter();
        let bounds = bounds.filter(|(size, times)| *size > 0.0 && times.is_finite());
        bounds.map(|(_, times)| times).reduce(f64::min)
    }

    /// Returns the cost of the instances' copy disks over the table's size. A disk is as large as the copy
    /// ([`scaled_copy_bytes`]).
    fn copy_by_size(&self, usd_per_gb_month: f64) -> Vec<(f64, f64)> {
        let (staged_bytes, table_bytes) = (self.variant.staged_bytes, self.table_bytes as f64);
        let usd = |times: f64| {
            let bytes = scaled_copy_bytes(staged_bytes, table_bytes, times);
            (times, self.servers * bytes / BYTES_PER_GB * usd_per_gb_month)
        };
        let bend = (staged_bytes as f64 / table_bytes).max(1.0);
        let mut curve = [0.0, 1.0, bend, 2.0 * bend].map(usd).to_vec();
        curve.dedup_by_key(|(times, _)| *times);
        curve
    }
}

/// Returns the bytes of a copy that keeps its share of a table `times` as large; a copy with spare room grows when that
/// room is used up.
pub fn scaled_copy_bytes(staged_bytes: u64, table_bytes: f64, times: f64) -> f64 {
    let staged = staged_bytes as f64;
    if staged < table_bytes {
        staged * times
    } else {
        staged.max(table_bytes * times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // Its copy is paid on an instance without a disk, whichever the plan chose.
        let months = &pricing.usd_per_month_by_instance;
        let expected = BTreeMap::from([("disk".to_owned(), 0.0), ("plain".to_owned(), 0.1)]);
        assert_eq!(months["s3 staged"], expected);
        let on = |name: &str| pricing.on(pricing.instances.iter().find(|one| one.name == name).unwrap());
        let month = |name: &str| on(name).terms_by_variant["s3 staged"].usd_per_instance_month;
        assert_eq!([month("disk"), month("plain")], [0.0, 0.1]);
        let per_request = ["s3 staged", "local"].map(|name| pricing.terms_by_variant[name].usd_per_request);
        assert!(per_request[0] > 0.0 && per_request[1] == 0.0);
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
    fn a_disk_that_nobody_pays_for_is_no_source() {
        let (_folder, path) = file(&[DISK, BLOBS, VOLUME, STAGING]);
        let mut pricing = super::super::load(&path, "disk", &[]).unwrap();
        // The copy is on the instance's own disk, and the table on a volume of each instance.
        let staged = PricedVariant {
            price: Some("volume".into()),
            staged_bytes: GB,
            ..variant("s3")
        };
        add_variants(&mut pricing, &path, &[staged], DATA).unwrap();
        assert!(pricing.terms_by_variant["v"].usd_per_instance_month > 0.0);
        let is_staging = |line: &String| line.starts_with("staging disk");
        assert!(!pricing.sources.iter().any(is_staging), "{:?}", pricing.sources);
    }

    #[test]
    fn a_variant_is_had_only_on_instances_that_hold_its_data() {
        let disk = |name: &str, keys: &str| {
            let keys = format!("usd_per_hour = 1.5\nlocal_disk = true\n{keys}");
            (format!("instances.{name}"), keys)
        };
        let [small, large] = [
            disk("small", "memory_gib = 64\nlocal_disk_gb = 50"),
            disk("large", "memory_gib = 8\nlocal_disk_gb = 1000"),
        ];
        let (_folder, path) = file(&[BLOBS, (&small.0[..], &small.1[..]), (&large.0[..], &large.1[..])]);
        let had_on = |tier: &str, cache_bytes| {
            let mut pricing = super::super::load(&path, "small", &[]).unwrap();
            let variant = PricedVariant {
                instance: (tier == "nvme").then(|| "large".to_owned()),
                cache_bytes,
                ..variant(tier)
            };
            add_variants(&mut pricing, &path, &[variant], DATA).unwrap();
            pricing.instances_by_tier["v"].clone()
        };
        // 100 GB on the instance's own disk; a cache of 9 GiB in its memory.
        assert_eq!(had_on("nvme", 0), ["large"]);
        assert_eq!(had_on("s3", 9 * GB), ["small"]);
        assert_eq!(had_on("s3", 0), ["large", "small"]);
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
