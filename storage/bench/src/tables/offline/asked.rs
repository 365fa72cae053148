//! The plan of an offline run. In: TOML, and flags over it. Out: what is measured, checked.

use super::options::Options;
use super::price::{Prices, RawPrice};
use crate::plan::{Size, bad_usage, tier_config};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_layouts::Layout;
use tierlab_storage::TierConfig;

/// A plan as its TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Its name, which folders of results begin with.
    name: String,
    /// Names every random choice: weights, rows, order.
    #[serde(default = "one")]
    seed: u64,
    /// Rounds, in each of which everything is measured once.
    #[serde(default = "five")]
    repeats: u32,
    /// Of each measurement.
    #[serde(default = "four_seconds")]
    seconds: f64,
    /// Before each of them.
    #[serde(default = "second")]
    warmup_seconds: f64,
    /// About how large shards are.
    #[serde(default = "shard")]
    shard_bytes: Size,
    /// What the tables are laid out as.
    #[serde(default = "two_layouts")]
    layouts: Vec<Layout>,
    /// Threads that run the model, each in a session of its own.
    #[serde(default = "one_usize")]
    sessions: usize,
    /// ONNX Runtime's threads of each session.
    #[serde(default = "one_usize")]
    session_threads: usize,
    #[serde(default)]
    loader: Loader,
    /// Models and their tables, by name.
    workloads: BTreeMap<String, RawWorkload>,
    #[serde(default)]
    price: Option<RawPrice>,
    /// A folder on the disk that local tiers measure.
    #[serde(default)]
    scratch: Option<PathBuf>,
    /// The tiers, by name.
    tiers: BTreeMap<String, PricedTier>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PricedTier {
    /// Its TOML, from the plan's folder.
    file: PathBuf,
    /// Keys that are other here.
    #[serde(default)]
    set: Vec<String>,
    /// The entry of the price file that says what reading costs.
    price: Option<String>,
}

/// How rows are read ahead.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Loader {
    /// Pieces that are read at the same time.
    pub(super) depth: usize,
    /// Threads that read and decode them.
    pub(super) workers: usize,
    /// About how large a piece is.
    pub(super) piece_bytes: Size,
    /// Batches that are made before a session asks for them.
    pub(super) ready_batches: usize,
}

impl Default for Loader {
    fn default() -> Self {
        Self {
            depth: 8,
            workers: 1,
            piece_bytes: Size(512 << 10),
            ready_batches: 4,
        }
    }
}

/// A model and its table as the plan has them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    /// A model that is made here with its table: `ctr` or `vision`.
    #[serde(default)]
    pub(super) generate: Option<String>,
    /// Rows of the table that is made.
    #[serde(default)]
    pub(super) rows: Option<u64>,
    /// A model's folder in a repository, with its config and versions.
    #[serde(default)]
    pub(super) model: Option<PathBuf>,
    /// Its table, a file of the rows format.
    #[serde(default)]
    pub(super) table: Option<PathBuf>,
    /// Rows of a run of the model.
    pub(super) batch_rows: usize,
    /// Rows among which the next one is drawn; 0: in order.
    #[serde(default)]
    pub(super) shuffle_rows: usize,
}

/// What is measured.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) seed: u64,
    pub(super) repeats: u32,
    pub(super) window: Duration,
    pub(super) warmup: Duration,
    pub(super) shard_bytes: u64,
    pub(super) layouts: Vec<Layout>,
    pub(super) sessions: usize,
    pub(super) session_threads: usize,
    pub(super) loader: Loader,
    pub(super) workloads: BTreeMap<String, RawWorkload>,
    pub(super) prices: Option<Prices>,
    pub(super) scratch: Option<PathBuf>,
    pub(super) tiers: BTreeMap<String, TierConfig>,
}

impl Asked {
    /// Reads a plan and what it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let file = &options.plan;
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
        let mut raw: Raw = toml::from_str(&text).map_err(|e| bad_usage(&name, e.to_string().trim_end()))?;
        raw.repeats = options.repeats.unwrap_or(raw.repeats);
        raw.seconds = options.seconds.unwrap_or(raw.seconds);
        check(&raw).map_err(|why| bad_usage(&name, &why))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let (mut tiers, mut entries) = (BTreeMap::new(), BTreeMap::new());
        for (tier, priced) in &raw.tiers {
            tiers.insert(tier.clone(), tier_config(&folder.join(&priced.file), &priced.set)?);
            entries.insert(tier.clone(), priced.price.clone());
        }
        let prices = raw.price.as_ref();
        let prices = prices
            .map(|price| Prices::read(&name, folder, price, &entries))
            .transpose()?;
        let from_plan = |path: &mut Option<PathBuf>| *path = path.take().map(|path| folder.join(path));
        let mut workloads = raw.workloads;
        for workload in workloads.values_mut() {
            from_plan(&mut workload.model);
            from_plan(&mut workload.table);
        }
        from_plan(&mut raw.scratch);
        Ok(Self {
            name: raw.name,
            text,
            seed: raw.seed,
            repeats: raw.repeats,
            window: Duration::from_secs_f64(raw.seconds),
            warmup: Duration::from_secs_f64(raw.warmup_seconds),
            shard_bytes: raw.shard_bytes.0,
            layouts: raw.layouts,
            sessions: raw.sessions,
            session_threads: raw.session_threads,
            loader: raw.loader,
            workloads,
            prices,
            scratch: options.scratch.clone().or(raw.scratch),
            tiers,
        })
    }
}

fn check(raw: &Raw) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if raw.name.is_empty() || !raw.name.chars().all(plain) {
        return Err("name: letters, digits, `-`, `_` and `.`".to_owned());
    }
    for (key, value, most) in [
        ("repeats", u64::from(raw.repeats), 1000),
        ("shard_bytes", raw.shard_bytes.0, 1 << 30),
        ("sessions", raw.sessions as u64, 256),
        ("session_threads", raw.session_threads as u64, 256),
        ("loader.depth", raw.loader.depth as u64, 1024),
        ("loader.workers", raw.loader.workers as u64, 256),
        ("loader.piece_bytes", raw.loader.piece_bytes.0, 1 << 30),
        ("loader.ready_batches", raw.loader.ready_batches as u64, 1024),
    ] {
        if !(1..=most).contains(&value) {
            return Err(format!("{key}: from 1 to {most}, not {value}"));
        }
    }
    for (key, seconds, least) in [
        ("seconds", raw.seconds, 0.05),
        ("warmup_seconds", raw.warmup_seconds, 0.0),
    ] {
        if !(least..=86_400.0).contains(&seconds) {
            return Err(format!("{key}: from {least} to 86400, not {seconds}"));
        }
    }
    if raw.tiers.is_empty() || raw.layouts.is_empty() || raw.workloads.is_empty() {
        return Err("`tiers`, `layouts` and `workloads`: at least one of each".to_owned());
    }
    if (1..raw.layouts.len()).any(|at| raw.layouts[..at].contains(&raw.layouts[at])) {
        return Err("layouts: one stands twice".to_owned());
    }
    for (name, workload) in &raw.workloads {
        let at = |why: String| Err(format!("workloads.{name}: {why}"));
        let own = workload.model.is_some() && workload.table.is_some();
        let made = workload.generate.is_some() && workload.rows.is_some();
        let mixed = workload.generate.is_some() || workload.rows.is_some();
        if !name.chars().all(plain) {
            return at("letters, digits, `-`, `_` and `.`".to_owned());
        }
        if made == own || (own && mixed) || (made && (workload.model.is_some() || workload.table.is_some())) {
            return at("`generate` and `rows`, or `model` and `table`".to_owned());
        }
        for (key, value, least, most) in [
            ("batch_rows", workload.batch_rows as u64, 1, 1 << 20),
            ("shuffle_rows", workload.shuffle_rows as u64, 0, 1 << 24),
            ("rows", workload.rows.unwrap_or(1), 1, 1 << 28),
        ] {
            if !(least..=most).contains(&value) {
                return at(format!("{key}: from {least} to {most}, not {value}"));
            }
        }
    }
    Ok(())
}

const fn one() -> u64 {
    1
}
const fn one_usize() -> usize {
    1
}
const fn five() -> u32 {
    5
}
const fn second() -> f64 {
    1.0
}
const fn four_seconds() -> f64 {
    4.0
}
const fn shard() -> Size {
    Size(16 << 20)
}
fn two_layouts() -> Vec<Layout> {
    vec![Layout::Rows, Layout::Tar]
}
