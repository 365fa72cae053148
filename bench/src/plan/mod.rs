//! A plan of `run`: points to measure. In: a file, and flags over it. Out: points, tiers and times, all checked.
//! `common`: parts that the plans of the other commands have too.

mod common;
mod cross;
mod point;
mod raw;

pub(crate) use common::{
    Common, Flags, RawTier, Several, Size, Source, bad_usage, check_counts, check_list, check_name, check_table,
    check_within, hundredths, mib, number, parse_positive_seconds, parse_seconds, seconds, tier_config,
};
pub(crate) use point::{CacheState, Operation, Pattern, Point, Way, WriteSync, word};
pub(crate) use raw::Arrivals;

use anyhow::Result;
use cross::TierPlace;
use raw::RawPlan;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tierlab_analysis::record::Limits;
use tierlab_storage::TierConfig;

/// A plan, checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// With those of the tiers that have points.
    pub(crate) common: Common,
    pub(crate) points: BTreeSet<Point>,
    /// Most CPU of others in an undisturbed repeat.
    pub(crate) limits: Limits,
    pub(crate) peers: bool,
    /// Time of writes before the first repeat of a point that writes.
    pub(crate) precondition: Duration,
    pub(crate) access: Access,
}

/// Settings of accesses, the same for all points.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Access {
    pub(crate) seed: u64,
    /// Bytes of all files together.
    pub(crate) size: u64,
    #[serde(serialize_with = "seconds")]
    pub(crate) window: Duration,
    #[serde(serialize_with = "seconds")]
    pub(crate) warmup: Duration,
    pub(crate) exponent: f64,
    pub(crate) stride: u32,
    pub(crate) write_share: f64,
    pub(crate) arrivals: Arrivals,
    /// If true, transient errors are counted and do not end a repeat.
    #[serde(skip)]
    pub(crate) tolerates_faults: bool,
}

impl Access {
    /// Random reads of so many bytes of data, by closed loops.
    pub(crate) fn reads(size: u64, window: Duration, warmup: Duration) -> Self {
        Self {
            seed: 1,
            size,
            window,
            warmup,
            exponent: 1.0,
            stride: 1,
            ..Self::default()
        }
    }
}

impl Plan {
    /// Reads a plan and the tiers that it names. `seconds` replaces the plan's.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(crate) fn read(flags: &Flags, seconds: Option<f64>) -> Result<Self> {
        let (mut source, mut raw) = Source::read::<RawPlan>(&flags.plan)?;
        raw.seconds = seconds.unwrap_or(raw.seconds);
        let mut tiers = source.tiers(&raw.tiers)?;
        let places = tiers.iter().map(|(name, config)| (name.clone(), place(config)));
        let places = places.collect();
        let access = access(&raw).map_err(|why| source.wrong(why))?;
        let points = cross::points(&raw.cross, &places, access.size).map_err(|why| source.wrong(why))?;
        tiers.retain(|name, _| points.iter().any(|point| point.tier == *name));
        // A run is resumed with the same plan and the same seconds.
        if let Some(seconds) = seconds {
            source.text += &format!("# --seconds {seconds}\n");
        }
        let repeats = flags.repeats.unwrap_or(raw.repeats).max(1);
        Ok(Self {
            common: source.common(flags, (&raw.name, raw.seed, repeats), raw.scratch.as_ref(), tiers),
            points,
            limits: Limits {
                foreign_cpu_share: raw.foreign_cpu_share,
                steal_share: raw.steal_share,
                ..Limits::default()
            },
            peers: raw.peers,
            precondition: Duration::from_secs_f64(raw.precondition_seconds),
            access,
        })
    }
}

fn access(raw: &RawPlan) -> Result<Access, String> {
    check_name("name", &raw.name)?;
    check_within("seconds", raw.seconds, 0.01, 86_400.0)?;
    check_within("warmup_seconds", raw.warmup_seconds, 0.0, 86_400.0)?;
    check_within("precondition_seconds", raw.precondition_seconds, 0.0, 86_400.0)?;
    check_within("exponent", raw.exponent, 0.0, 10.0)?;
    for (key, share) in [
        ("foreign_cpu_share", raw.foreign_cpu_share),
        ("steal_share", raw.steal_share),
        ("write_share", raw.write_share),
    ] {
        check_within(key, share, 0.0, 1.0)?;
    }
    Ok(Access {
        seed: raw.seed,
        size: raw.size.0,
        window: Duration::from_secs_f64(raw.seconds),
        warmup: Duration::from_secs_f64(raw.warmup_seconds),
        exponent: raw.exponent,
        stride: raw.stride.max(1),
        write_share: raw.write_share,
        arrivals: raw.arrivals,
        tolerates_faults: false,
    })
}

/// Local files are those of an nvme tier with one root and nothing around it.
fn place(config: &TierConfig) -> TierPlace {
    match config {
        _ if config.kind() == "flight" => TierPlace::ReadOnly(config.kind()),
        TierConfig::Nvme(nvme) if nvme.roots.is_empty() => TierPlace::Local { direct: nvme.direct },
        _ => TierPlace::Elsewhere,
    }
}
