//! The plan of a comparison of layouts. In: TOML, and flags over it. Out: what is measured, checked.

use super::options::Options;
use crate::plan::{RawTier, Size, bad_usage, tier_config};
use anyhow::Result;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tierlab_layouts::Layout;
use tierlab_storage::TierConfig;

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
    pub(super) name: String,
    pub(super) text: String,
    pub(super) seed: u64,
    pub(super) repeats: u32,
    pub(super) rows: u64,
    pub(super) shard_bytes: u64,
    pub(super) layouts: Vec<Layout>,
    pub(super) lookups: u32,
    pub(super) batches: u32,
    pub(super) batch_rows: u32,
    pub(super) scan_rows: u64,
    pub(super) scan_depth: usize,
    pub(super) scratch: Option<PathBuf>,
    pub(super) tiers: BTreeMap<String, TierConfig>,
}

impl Asked {
    /// Reads a plan and the tiers that it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(super) fn read(options: &Options) -> Result<Self> {
        let file = &options.plan;
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
        let raw: Raw = toml::from_str(&text).map_err(|e| bad_usage(&name, e.to_string().trim_end()))?;
        check(&raw).map_err(|why| bad_usage(&name, &why))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut tiers = BTreeMap::new();
        for (name, tier) in &raw.tiers {
            tiers.insert(name.clone(), tier_config(&folder.join(&tier.file), &tier.set)?);
        }
        Ok(Self {
            name: raw.name,
            text,
            seed: raw.seed,
            repeats: options.repeats.unwrap_or(raw.repeats),
            rows: options.rows.unwrap_or(raw.rows).max(1),
            shard_bytes: raw.shard_bytes.0,
            layouts: raw.layouts,
            lookups: raw.lookups,
            batches: raw.batches,
            batch_rows: raw.batch_rows,
            scan_rows: raw.scan_rows,
            scan_depth: raw.scan_depth,
            scratch: options
                .scratch
                .clone()
                .or_else(|| raw.scratch.map(|scratch| folder.join(scratch))),
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
        ("rows", raw.rows, MAX_ROWS),
        ("shard_bytes", raw.shard_bytes.0, 1 << 30),
        ("lookups", u64::from(raw.lookups), 1_000_000),
        ("batches", u64::from(raw.batches), 1_000_000),
        ("batch_rows", u64::from(raw.batch_rows), 100_000),
        ("scan_rows", raw.scan_rows, MAX_ROWS),
        ("scan_depth", raw.scan_depth as u64, 256),
    ] {
        if !(1..=most).contains(&value) {
            return Err(format!("{key}: from 1 to {most}, not {value}"));
        }
    }
    if raw.tiers.is_empty() || raw.layouts.is_empty() {
        return Err("`tiers` and `layouts`: at least one of each".to_owned());
    }
    if let Some(twice) = raw
        .layouts
        .iter()
        .enumerate()
        .find(|(at, layout)| raw.layouts[..*at].contains(layout))
    {
        return Err(format!("layouts: {} stands twice", twice.1));
    }
    Ok(())
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
