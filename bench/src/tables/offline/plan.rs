//! The plan of an offline run, and its costs. In: TOML, flags over it, the price file. Out: settings, checked; dollars per million samples.

use crate::machine::check_memory;
use crate::plan::{
    Common, Flags, OneOrMany, RawTier, Size, Source, check_counts, check_each, check_list, check_name, check_table,
    check_within, hundredths, mib, number,
};
use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_instrument::prices::ReadPrices;
use tierlab_layouts::Layout;

/// Flags of `offline`.
#[derive(Debug, Args)]
pub(crate) struct OfflineOptions {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Seconds of each measurement, instead of the plan's
    #[arg(long)]
    seconds: Option<f64>,
    /// ONNX Runtime's library, or its folder
    #[arg(long, value_name = "PATH", env = "ORT_DYLIB_PATH")]
    pub(super) onnxruntime: Option<PathBuf>,
}

/// A plan.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfflinePlan {
    /// Name of the run, used as prefix of result folders.
    name: String,
    /// Seed of every random choice: weights, rows, order.
    #[serde(default = "number::<_, 1>")]
    seed: u64,
    /// Rounds, each of which measures everything once.
    #[serde(default = "number::<_, 5>")]
    repeats: u32,
    /// Seconds of each measurement.
    #[serde(default = "hundredths::<400>")]
    seconds: f64,
    /// Warm-up seconds before each measurement.
    #[serde(default = "hundredths::<100>")]
    warmup_seconds: f64,
    /// Approximate size of a shard.
    #[serde(default = "mib::<16>")]
    pub(super) shard_bytes: Size,
    /// Layouts of the tables.
    #[serde(default = "two_layouts")]
    pub(super) layouts: Vec<Layout>,
    /// Threads that run the model, each in a session of its own.
    #[serde(default = "number::<_, 1>")]
    pub(super) sessions: usize,
    /// ONNX Runtime's threads per session.
    #[serde(default = "number::<_, 1>")]
    pub(super) session_threads: usize,
    #[serde(default)]
    pub(super) loader: Loader,
    /// Models and their tables, by name.
    pub(super) workloads: BTreeMap<String, RawWorkload>,
    #[serde(default, skip_serializing)]
    price: Option<RawOfflinePrice>,
    /// Folder on the disk that local tiers measure.
    scratch: Option<PathBuf>,
    /// The tiers, by name.
    #[serde(skip_serializing)]
    tiers: BTreeMap<String, RawTier>,
}

/// Settings of read-ahead.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loader {
    /// Pieces read at the same time; each value of a list is measured.
    depth: OneOrMany<usize>,
    /// Threads that read and decode pieces; each value of a list is measured.
    workers: OneOrMany<u16>,
    /// Approximate size of a piece.
    pub(super) piece_bytes: Size,
    /// Bytes of batches assembled ahead of the sessions. With too few, the tier's bursts are lost.
    pub(super) ready_bytes: Size,
}

impl Default for Loader {
    fn default() -> Self {
        Self {
            depth: OneOrMany::One(8),
            workers: OneOrMany::One(1),
            piece_bytes: Size(512 << 10),
            ready_bytes: Size(32 << 20),
        }
    }
}

/// A model and its table.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    /// Model to generate with its table: `ctr` or `vision`.
    pub(super) generate: Option<String>,
    /// Bytes of a sample in a table generated for accelerators, without a model.
    pub(super) sample_bytes: Option<Size>,
    /// Rows of the generated table.
    pub(super) rows: Option<u64>,
    /// Accelerators emulated instead of the model.
    pub(super) accelerator: Option<Accelerator>,
    /// Folder of the model in a repository, with its config and versions.
    pub(super) model: Option<PathBuf>,
    /// Model's table, a file in the rows format.
    pub(super) table: Option<PathBuf>,
    /// Rows per run of the model.
    pub(super) batch_rows: usize,
    /// Rows of the shuffle buffer from which the next row is drawn; 0 keeps the order.
    #[serde(default)]
    pub(super) shuffle_rows: usize,
}

/// Accelerators that take the loader's batches and compute for a fixed time.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accelerator {
    /// Milliseconds of one accelerator for a batch of `batch_rows`.
    compute_ms_per_batch: f64,
    /// Numbers of accelerators to measure.
    #[serde(default = "counts")]
    pub(super) count: Vec<u32>,
}

impl Accelerator {
    /// Time of one accelerator for a batch.
    pub(super) fn compute(&self) -> Duration {
        Duration::from_secs_f64(self.compute_ms_per_batch / 1e3)
    }
}

/// `[price]` of an offline plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOfflinePrice {
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

impl OfflinePlan {
    /// Reads a plan and the files that it names.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(super) fn read(options: &OfflineOptions) -> Result<(Common, Self, Option<OfflinePrices>)> {
        let (source, mut plan) = Source::read::<Self>(&options.flags.plan)?;
        plan.repeats = options.flags.repeats.unwrap_or(plan.repeats);
        plan.seconds = options.seconds.unwrap_or(plan.seconds);
        plan.check().map_err(|why| source.invalid(why))?;
        for workload in plan.workloads.values_mut() {
            for path in [&mut workload.model, &mut workload.table] {
                *path = path.take().map(|path| source.folder.join(path));
            }
        }
        let (tiers, entries) = source.priced_tiers(&plan.tiers)?;
        let prices = match &plan.price {
            Some(price) => Some(OfflinePrices {
                instance: price.instance.clone(),
                reads: source.prices(&price.file, Some(&price.instance), &entries)?,
            }),
            None => None,
        };
        let head = (plan.name.as_str(), plan.seed, plan.repeats);
        let common = source.common(&options.flags, head, plan.scratch.as_ref(), tiers);
        Ok((common, plan, prices))
    }

    /// Time of each measurement.
    pub(super) fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Warm-up time before each measurement.
    pub(super) fn warmup(&self) -> Duration {
        Duration::from_secs_f64(self.warmup_seconds)
    }

    /// Returns every depth of the loader with every number of workers.
    pub(super) fn loaders(&self) -> Vec<(usize, u16)> {
        let (depths, workers) = (self.loader.depth.values(), self.loader.workers.values());
        let with_each = |&depth: &usize| workers.iter().map(move |&workers| (depth, workers));
        depths.iter().flat_map(with_each).collect()
    }

    fn check(&self) -> Result<()> {
        check_name("name", &self.name)?;
        check_each("loader.depth", self.loader.depth.values(), 1, 1024)?;
        check_each("loader.workers", self.loader.workers.values(), 1, 256)?;
        check_counts(&[
            ("repeats", u64::from(self.repeats), 1000),
            ("shard_bytes", self.shard_bytes.0, 1 << 30),
            ("sessions", self.sessions as u64, 256),
            ("session_threads", self.session_threads as u64, 256),
            ("loader.piece_bytes", self.loader.piece_bytes.0, 1 << 30),
            ("loader.ready_bytes", self.loader.ready_bytes.0, 1 << 40),
        ])?;
        check_memory("loader.ready_bytes", self.loader.ready_bytes.0)?;
        check_within("seconds", self.seconds, 0.05, 86_400.0)?;
        check_within("warmup_seconds", self.warmup_seconds, 0.0, 86_400.0)?;
        check_table("tiers", &self.tiers)?;
        check_table("workloads", &self.workloads)?;
        let layouts: Vec<&str> = self.layouts.iter().map(|layout| layout.as_str()).collect();
        check_list("layouts", &layouts)?;
        self.workloads.iter().try_for_each(|(name, one)| one.check(name))
    }
}

impl RawWorkload {
    fn check(&self, name: &str) -> Result<()> {
        let key = format!("workloads.{name}");
        check_name(&key, name)?;
        let is_generated = self.rows.is_some() && (self.generate.is_some() != self.sample_bytes.is_some());
        let is_complete = match (&self.model, &self.table) {
            (None, None) => is_generated && (self.sample_bytes.is_none() || self.accelerator.is_some()),
            (Some(_), Some(_)) => self.rows.is_none() && self.generate.is_none() && self.sample_bytes.is_none(),
            _ => false,
        };
        ensure!(
            is_complete,
            "{key}: set either `generate` and `rows`, or `model` and `table`, or `sample_bytes`, `rows` and `accelerator`"
        );
        if let Some(accelerator) = &self.accelerator {
            let (ms, key) = (accelerator.compute_ms_per_batch, format!("{key}: accelerator"));
            check_within(&format!("{key}.compute_ms_per_batch"), ms, 0.01, 60_000.0)?;
            check_each(&format!("{key}.count"), &accelerator.count, 1, 1024)?;
        }
        let sample_bytes = self.sample_bytes.map_or(1, |size| size.0);
        check_within(&format!("{key}: sample_bytes"), sample_bytes, 1, 63 << 20)?;
        check_within(&format!("{key}: batch_rows"), self.batch_rows, 1, 1 << 20)?;
        check_within(&format!("{key}: shuffle_rows"), self.shuffle_rows, 0, 1 << 24)?;
        check_within(&format!("{key}: rows"), self.rows.unwrap_or(1), 1, 1 << 28)
    }
}

fn counts() -> Vec<u32> {
    vec![1, 2, 4, 8]
}

fn two_layouts() -> Vec<Layout> {
    vec![Layout::Rows, Layout::Tar]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_instrument::prices::ReadPrice;

    #[test]
    fn every_depth_is_measured_with_every_number_of_workers() {
        let text = include_str!("../../../../configs/storage/accelerators.toml");
        let mut plan: OfflinePlan = toml::from_str(text).unwrap();
        assert_eq!(plan.loaders(), [(8, 2)]);
        plan.loader = toml::from_str("depth = [1, 8]\nworkers = [1, 2]").unwrap();
        assert_eq!(plan.loaders(), [(1, 1), (1, 2), (8, 1), (8, 2)]);
        plan.check().unwrap();
        plan.loader = toml::from_str("workers = [1, 0]").unwrap();
        assert!(plan.check().unwrap_err().to_string().contains("loader.workers"));
    }

    #[test]
    fn more_batches_ahead_than_memory_holds_are_refused() {
        let text = include_str!("../../../../configs/storage/accelerators.toml");
        let mut plan: OfflinePlan = toml::from_str(text).unwrap();
        plan.loader.ready_bytes = Size(1 << 40);
        let error = plan.check().unwrap_err().to_string();
        assert!(error.contains("loader.ready_bytes takes 1 TiB"), "{error}");
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
