//! The plan of a comparison of layouts. In: TOML, and flags over it. Out: what is measured, checked.

use super::options::Options;
use crate::plan::{RawTier, Size, bad_usage, check_name, tier_config};
use crate::tables::plan::{Common, Found, check_counts, check_once, find};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_layouts::Layout;

/// Rows at most: a layout has a file for each of them.
const MAX_ROWS: u64 = 1 << 30;

/// A plan as its TOML has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// Its name, which folders of results begin with.
    name: String,
    /// Names every random choice: values, entities, order.
    #[serde(default = "one")]
    seed: u64,
    /// Rounds, in each of which everything is measured once.
    #[serde(default = "five")]
    repeats: u32,
    /// Rows of the table, of 13 floats and 26 integers each.
    #[serde(default = "twenty_thousand")]
    rows: u64,
    /// About how large shards are.
    #[serde(default = "shard")]
    shard_bytes: Size,
    /// Which of them; all where left out.
    #[serde(default = "all")]
    layouts: Vec<Layout>,
    /// Single entities looked up in a repeat, one after another.
    #[serde(default = "sixty")]
    lookups: u32,
    /// Batches looked up in a repeat, one after another.
    #[serde(default = "twenty")]
    batches: u32,
    /// Entities of a batch.
    #[serde(default = "thirty_two")]
    batch_rows: u32,
    /// Rows scanned in a repeat, in order.
    #[serde(default = "five_thousand")]
    scan_rows: u64,
    /// Pieces of a scan that are read at the same time.
    #[serde(default = "four")]
    scan_depth: usize,
    /// A folder on the disk that local tiers measure.
    #[serde(default)]
    scratch: Option<PathBuf>,
    /// The tiers, by name.
    tiers: BTreeMap<String, RawTier>,
}

/// What is measured.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) common: Common,
    pub(super) rows: u64,
    pub(super) shard_bytes: u64,
    pub(super) layouts: Vec<Layout>,
    pub(super) lookups: u32,
    pub(super) batches: u32,
    pub(super) batch_rows: u32,
    pub(super) scan_rows: u64,
    pub(super) scan_depth: usize,
}

impl Asked {
    /// Reads a plan and the tiers that it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let Found {
            file,
            folder,
            text,
            raw,
        } = find::<Raw>(&options.plan)?;
        check(&raw).map_err(|why| bad_usage(&file, &why))?;
        let mut tiers = BTreeMap::new();
        for (name, tier) in &raw.tiers {
            tiers.insert(name.clone(), tier_config(&folder.join(&tier.file), &tier.set)?);
        }
        let from_plan = raw.scratch.map(|scratch| folder.join(scratch));
        Ok(Self {
            common: Common {
                name: raw.name,
                text,
                seed: raw.seed,
                repeats: options.repeats.unwrap_or(raw.repeats),
                scratch: options.scratch.clone().or(from_plan),
                tiers,
            },
            rows: options.rows.unwrap_or(raw.rows).max(1),
            shard_bytes: raw.shard_bytes.0,
            layouts: raw.layouts,
            lookups: raw.lookups,
            batches: raw.batches,
            batch_rows: raw.batch_rows,
            scan_rows: raw.scan_rows,
            scan_depth: raw.scan_depth,
        })
    }
}

fn check(raw: &Raw) -> Result<(), String> {
    check_name("name", &raw.name)?;
    check_counts(&[
        ("repeats", u64::from(raw.repeats), 1000),
        ("rows", raw.rows, MAX_ROWS),
        ("shard_bytes", raw.shard_bytes.0, 1 << 30),
        ("lookups", u64::from(raw.lookups), 1_000_000),
        ("batches", u64::from(raw.batches), 1_000_000),
        ("batch_rows", u64::from(raw.batch_rows), 100_000),
        ("scan_rows", raw.scan_rows, MAX_ROWS),
        ("scan_depth", raw.scan_depth as u64, 256),
    ])?;
    if raw.tiers.is_empty() || raw.layouts.is_empty() {
        return Err("`tiers` and `layouts`: at least one of each".to_owned());
    }
    let names: Vec<&str> = raw.layouts.iter().map(|layout| layout.as_str()).collect();
    check_once("layouts", &names)
}

const fn one() -> u64 {
    1
}
const fn five() -> u32 {
    5
}
const fn twenty() -> u32 {
    20
}
const fn sixty() -> u32 {
    60
}
const fn thirty_two() -> u32 {
    32
}
const fn four() -> usize {
    4
}
const fn five_thousand() -> u64 {
    5000
}
const fn twenty_thousand() -> u64 {
    20_000
}
const fn shard() -> Size {
    Size(4 << 20)
}
fn all() -> Vec<Layout> {
    Layout::ALL.to_vec()
}
