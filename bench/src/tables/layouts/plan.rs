//! The plan of a comparison of layouts. In: TOML, and flags over it. Out: settings, checked.

use crate::plan::{
    Common, Flags, RawTier, Size, Source, check_counts, check_list, check_name, check_table, check_within, mib, number,
};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_layouts::Layout;

/// Maximum rows: one layout has a file per row.
const MAX_ROWS: u64 = 1 << 30;
/// Maximum entities of all batches of a repeat, which are drawn in advance: 1 GiB of ids.
const MAX_LOOKED_UP: u64 = 1 << 27;

/// Flags of `layouts`.
#[derive(Debug, Args)]
pub(crate) struct LayoutsOptions {
    #[command(flatten)]
    pub(super) flags: Flags,
    /// Rows of the table, instead of the plan's
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    rows: Option<u64>,
}

/// A plan.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayoutsPlan {
    /// Name of the run, used as prefix of result folders.
    name: String,
    /// Seed of every random choice: values, entities, order.
    #[serde(default = "number::<_, 1>")]
    seed: u64,
    /// Rounds, each of which measures everything once.
    #[serde(default = "number::<_, 5>")]
    repeats: u32,
    /// Rows of the table, of 13 floats and 26 integers each.
    #[serde(default = "number::<_, 20000>")]
    pub(super) rows: u64,
    /// Approximate size of a shard.
    #[serde(default = "mib::<4>")]
    pub(super) shard_bytes: Size,
    /// Layouts to measure (default: all).
    #[serde(default = "all")]
    pub(super) layouts: Vec<Layout>,
    /// Single entities looked up in a repeat, one after another.
    #[serde(default = "number::<_, 60>")]
    pub(super) lookups: u32,
    /// Batches looked up in a repeat, one after another.
    #[serde(default = "number::<_, 20>")]
    pub(super) batches: u32,
    /// Entities of a batch.
    #[serde(default = "number::<_, 32>")]
    pub(super) batch_rows: u32,
    /// Rows scanned in a repeat, in order.
    #[serde(default = "number::<_, 5000>")]
    pub(super) scan_rows: u64,
    /// Pieces of a scan read at the same time.
    #[serde(default = "number::<_, 4>")]
    pub(super) scan_depth: usize,
    /// Folder on the disk that local tiers measure.
    scratch: Option<PathBuf>,
    /// The tiers, by name.
    #[serde(skip_serializing)]
    tiers: BTreeMap<String, RawTier>,
}

impl LayoutsPlan {
    /// Reads a plan and the tiers that it names.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(super) fn read(options: &LayoutsOptions) -> Result<(Common, Self)> {
        let (source, mut plan) = Source::read::<Self>(&options.flags.plan)?;
        plan.repeats = options.flags.repeats.unwrap_or(plan.repeats);
        plan.rows = options.rows.unwrap_or(plan.rows);
        plan.check().map_err(|why| source.invalid(why))?;
        let tiers = source.tiers(&plan.tiers)?;
        let head = (plan.name.as_str(), plan.seed, plan.repeats);
        let common = source.common(&options.flags, head, plan.scratch.as_ref(), tiers);
        Ok((common, plan))
    }

    fn check(&self) -> Result<()> {
        check_name("name", &self.name)?;
        check_counts(&[
            ("repeats", u64::from(self.repeats), 1000),
            ("rows", self.rows, MAX_ROWS),
            ("shard_bytes", self.shard_bytes.0, 1 << 30),
            ("lookups", u64::from(self.lookups), 1_000_000),
            ("batches", u64::from(self.batches), 1_000_000),
            ("batch_rows", u64::from(self.batch_rows), 100_000),
            ("scan_rows", self.scan_rows, MAX_ROWS),
            ("scan_depth", self.scan_depth as u64, 256),
        ])?;
        let looked_up = u64::from(self.batches) * u64::from(self.batch_rows);
        check_within("batches × batch_rows", looked_up, 1, MAX_LOOKED_UP)?;
        check_table("tiers", &self.tiers)?;
        let layouts: Vec<&str> = self.layouts.iter().map(|layout| layout.as_str()).collect();
        check_list("layouts", &layouts)
    }
}

fn all() -> Vec<Layout> {
    Layout::all().collect()
}
