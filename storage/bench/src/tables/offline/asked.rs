//! The plan of an offline run. In: TOML, and flags over it. Out: what is measured, checked.

use super::options::Options;
use super::price::{Prices, RawPrice};
use crate::plan::{Size, bad_usage, check_name};
use crate::tables::plan::{Common, Found, PricedTier, check_counts, check_once, check_within, find, tiers};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_layouts::Layout;

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
    /// Bytes of batches that are made before a session asks for them. What a tier gives in bursts is lost where they are few.
    pub(super) ready_bytes: Size,
}

impl Default for Loader {
    fn default() -> Self {
        Self {
            depth: 8,
            workers: 1,
            piece_bytes: Size(512 << 10),
            ready_bytes: Size(32 << 20),
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
    pub(super) common: Common,
    pub(super) window: Duration,
    pub(super) warmup: Duration,
    pub(super) shard_bytes: u64,
    pub(super) layouts: Vec<Layout>,
    pub(super) sessions: usize,
    pub(super) session_threads: usize,
    pub(super) loader: Loader,
    pub(super) workloads: BTreeMap<String, RawWorkload>,
    pub(super) prices: Option<Prices>,
}

impl Asked {
    /// Reads a plan and what it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let Found {
            file,
            folder,
            text,
            mut raw,
        } = find::<Raw>(&options.plan)?;
        raw.repeats = options.repeats.unwrap_or(raw.repeats);
        raw.seconds = options.seconds.unwrap_or(raw.seconds);
        check(&raw).map_err(|why| bad_usage(&file, &why))?;
        let (tiers, entries) = tiers(&folder, raw.tiers)?;
        let prices = raw.price.as_ref();
        let prices = prices
            .map(|price| Prices::read(&file, &folder, price, &entries))
            .transpose()?;
        let from_plan = |path: &mut Option<PathBuf>| *path = path.take().map(|path| folder.join(path));
        let mut workloads = raw.workloads;
        for workload in workloads.values_mut() {
            from_plan(&mut workload.model);
            from_plan(&mut workload.table);
        }
        from_plan(&mut raw.scratch);
        Ok(Self {
            common: Common {
                name: raw.name,
                text,
                seed: raw.seed,
                repeats: raw.repeats,
                scratch: options.scratch.clone().or(raw.scratch),
                tiers,
            },
            window: Duration::from_secs_f64(raw.seconds),
            warmup: Duration::from_secs_f64(raw.warmup_seconds),
            shard_bytes: raw.shard_bytes.0,
            layouts: raw.layouts,
            sessions: raw.sessions,
            session_threads: raw.session_threads,
            loader: raw.loader,
            workloads,
            prices,
        })
    }
}

fn check(raw: &Raw) -> Result<(), String> {
    check_name("name", &raw.name)?;
    check_counts(&[
        ("repeats", u64::from(raw.repeats), 1000),
        ("shard_bytes", raw.shard_bytes.0, 1 << 30),
        ("sessions", raw.sessions as u64, 256),
        ("session_threads", raw.session_threads as u64, 256),
        ("loader.depth", raw.loader.depth as u64, 1024),
        ("loader.workers", raw.loader.workers as u64, 256),
        ("loader.piece_bytes", raw.loader.piece_bytes.0, 1 << 30),
        ("loader.ready_bytes", raw.loader.ready_bytes.0, 1 << 40),
    ])?;
    check_within("seconds", raw.seconds, 0.05, 86_400.0)?;
    check_within("warmup_seconds", raw.warmup_seconds, 0.0, 86_400.0)?;
    if raw.tiers.is_empty() || raw.layouts.is_empty() || raw.workloads.is_empty() {
        return Err("`tiers`, `layouts` and `workloads`: at least one of each".to_owned());
    }
    let names: Vec<&str> = raw.layouts.iter().map(|layout| layout.as_str()).collect();
    check_once("layouts", &names)?;
    for (name, workload) in &raw.workloads {
        check_name(&format!("workloads.{name}"), name)?;
        let at = |why: &str| Err(format!("workloads.{name}: {why}"));
        let own = workload.model.is_some() && workload.table.is_some();
        let made = workload.generate.is_some() && workload.rows.is_some();
        let mixed = workload.generate.is_some() || workload.rows.is_some();
        if made == own || (own && mixed) || (made && (workload.model.is_some() || workload.table.is_some())) {
            return at("`generate` and `rows`, or `model` and `table`");
        }
        for (key, value, least, most) in [
            ("batch_rows", workload.batch_rows as u64, 1, 1 << 20),
            ("shuffle_rows", workload.shuffle_rows as u64, 0, 1 << 24),
            ("rows", workload.rows.unwrap_or(1), 1, 1 << 28),
        ] {
            check_within(&format!("workloads.{name}: {key}"), value, least, most)?;
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
