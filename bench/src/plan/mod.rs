//! A plan of `run`: points to measure. In: a file, and flags over it. Out: checked points, tiers and times.
//! `common`: parts shared with the plans of other commands.

mod common;
mod cross;
mod point;

pub(crate) use common::{
    Common, Flags, OneOrMany, RawTier, Size, Source, bad_usage, check_counts, check_each, check_list, check_name,
    check_table, check_within, hundredths, mib, number, parse_positive_seconds, parse_seconds, seconds, tier_config,
};
pub(crate) use point::{CacheState, MAX_ZIPF_BLOCKS, Operation, Pattern, Point, Way, WriteSync, toml_name};

use anyhow::{Context as _, Result};
use common::{default_entry, numbers};
use cross::TierKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::Limits;
use tierlab_storage::TierConfig;

/// A plan as TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    /// Name of the run, used as prefix of result folders.
    name: String,
    /// Seed of every random choice: content, positions, arrivals, order.
    #[serde(default = "number::<_, 1>")]
    seed: u64,
    /// Repeats of each point.
    #[serde(default = "number::<_, 10>")]
    repeats: u32,
    /// Seconds of each repeat.
    #[serde(default = "hundredths::<100>")]
    seconds: f64,
    /// Uncounted seconds before each repeat.
    #[serde(default = "hundredths::<25>")]
    warmup_seconds: f64,
    /// Seconds of writes before the first repeat of a point that writes.
    #[serde(default)]
    precondition_seconds: f64,
    /// Bytes of all files of the data.
    #[serde(default = "mib::<256>")]
    size: Size,
    /// Folder on the disk that local tiers measure.
    scratch: Option<PathBuf>,
    /// Exponent of Zipf's law.
    #[serde(default = "hundredths::<100>")]
    exponent: f64,
    /// Blocks from one access of `strided` to the next.
    #[serde(default = "number::<_, 16>")]
    stride: u32,
    /// Share of the accesses of `mixed` that are writes.
    #[serde(default = "hundredths::<30>")]
    write_share: f64,
    /// Gaps between the calls of an open loop.
    #[serde(default)]
    arrivals: Arrivals,
    /// Maximum CPU use of other processes in an undisturbed repeat, as a share of all cores.
    #[serde(default = "hundredths::<10>")]
    foreign_cpu_share: f64,
    /// Maximum CPU steal time in an undisturbed repeat, as a share of all cores.
    #[serde(default = "hundredths::<5>")]
    steal_share: f64,
    /// Maximum skew of the agents' starts in an undisturbed repeat, in microseconds.
    #[serde(default = "number::<_, 2000>")]
    start_skew_us: u64,
    /// If true, the default, installed peers are also measured at the points they support.
    peers: Option<bool>,
    /// The tiers, by name.
    tiers: BTreeMap<String, RawTier>,
    /// Tables of crossed factors; each gives a set of points.
    cross: Vec<RawCross>,
}

/// Factors: every value of each is crossed with every value of the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCross {
    /// Names of tiers.
    tier: Vec<String>,
    /// Ways of reading.
    #[serde(default = "default_entry")]
    way: Vec<Way>,
    /// Patterns of the positions.
    #[serde(default = "default_entry")]
    pattern: Vec<Pattern>,
    /// Reads, writes, or both; or operations on whole objects.
    #[serde(default = "default_entry")]
    operation: Vec<Operation>,
    /// Bytes of an access; for operations on whole objects, bytes of each object.
    block: Vec<Size>,
    /// Calls in flight.
    #[serde(default = "numbers::<_, 1>")]
    depth: Vec<u32>,
    /// Threads of the runtime; 0 is one per core.
    #[serde(default = "default_entry")]
    threads: Vec<u16>,
    /// Content of the page cache: `cold` or `warm`.
    #[serde(default = "default_entry")]
    cache: Vec<CacheState>,
    /// Durability of blocks written by `pread` and `pread-direct`; a tier's own writes follow the tier.
    #[serde(default = "default_entry")]
    sync: Vec<WriteSync>,
    /// Number of files or objects into which the data is split.
    #[serde(default = "numbers::<_, 1>")]
    files: Vec<u32>,
    /// Calls offered per second; 0 is a closed loop.
    #[serde(default = "default_entry")]
    rate: Vec<u32>,
}

/// Gaps between due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arrivals {
    /// Exponential gaps: independent callers.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
}

/// A plan, checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Common settings, with only the tiers that have points.
    pub(crate) common: Common,
    pub(crate) points: BTreeSet<Point>,
    /// Tiers with keys set by the plan.
    overridden: BTreeSet<String>,
    /// Maximum CPU use of others in an undisturbed repeat.
    pub(crate) limits: Limits,
    pub(crate) peers: bool,
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
    /// Duration of writes before the first repeat of a point that writes.
    #[serde(serialize_with = "seconds")]
    pub(crate) precondition: Duration,
    pub(crate) exponent: f64,
    pub(crate) stride: u32,
    pub(crate) write_share: f64,
    pub(crate) arrivals: Arrivals,
    /// This agent's share of the offered rate.
    #[serde(skip)]
    pub(crate) share: Share,
    /// If true, transient errors are counted instead of ending a repeat.
    #[serde(skip)]
    pub(crate) tolerates_faults: bool,
}

/// Share of one of several agents that measure together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Number of the agent, from 0.
    pub(crate) number: u32,
    /// Number of agents.
    pub(crate) of: u32,
}

/// Share of a process that measures alone.
impl Default for Share {
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Access {
    /// Random reads of `size` bytes of data, by closed loops.
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

    /// Number of parts of cold data, of which a repeat accesses one: read-ahead has warmed blocks of the others.
    pub(crate) fn cold_parts(&self, pattern: Pattern) -> u64 {
        match pattern {
            Pattern::Strided => self.stride.into(),
            // Up to a quarter, the kernel reads ahead some percent more; then most reads find their block.
            Pattern::Random => 4,
            Pattern::Sequential | Pattern::Zipf => 1,
        }
    }

    /// Warm-up of a point's repeats.
    pub(crate) fn warmup_of(&self, point: &Point) -> Duration {
        // Calls before the window would use up the data, or be synced with it.
        match point.ends_with_data() || point.sync == WriteSync::End {
            true => Duration::ZERO,
            false => self.warmup,
        }
    }

    /// Seed of a repeat's positions and arrivals.
    pub(crate) fn seed_of(&self, repeat: u32) -> u64 {
        self.seed.wrapping_add(u64::from(repeat).wrapping_mul(0x9E37_79B9))
    }
}

impl Plan {
    /// Reads a plan and the tiers that it names, measured by this process or by several agents. `seconds` replaces the plan's.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(crate) fn read(flags: &Flags, seconds: Option<f64>, agents: usize) -> Result<Self> {
        let (source, raw) = Source::read(&flags.plan)?;
        let of = agents.max(1) as u32;
        Self::of(source, raw, flags, seconds, Share { number: 0, of })
    }

    /// Reads the text of a run's plan for an agent. Tiers are the files of the same names in the agent's own `folder`, and the scratch
    /// folder is the agent's: no path of the run is used.
    ///
    /// # Errors
    /// The file and the key, and its allowed values.
    pub(crate) fn of_run(text: &str, flags: &Flags, folder: &Path, seconds: Option<f64>, share: Share) -> Result<Self> {
        let (mut source, mut raw): (Source, RawPlan) = Source::parse(&flags.plan, text.to_owned())?;
        source.folder = folder.to_owned();
        for tier in raw.tiers.values_mut() {
            tier.file = tier.file.file_name().map_or_else(PathBuf::new, PathBuf::from);
        }
        raw.scratch = None;
        let folder = folder.display();
        let own = || format!("--tiers {folder} must contain the plan's tiers, as this agent reaches them");
        let mut plan = Self::of(source, raw, flags, seconds, share).with_context(own)?;
        plan.check_agents()?;
        // Agents with equal positions and arrivals would act as one caller.
        plan.access.seed = plan.access.seed.wrapping_add(u64::from(share.number) << 32);
        Ok(plan)
    }

    /// Checks that agents can measure the plan.
    ///
    /// # Errors
    /// The key, and what to do.
    pub(crate) fn check_agents(&self) -> Result<()> {
        for (name, config) in &self.common.tiers {
            let why = match config.kind() {
                "memory" => "each agent would measure its own memory: leave the tier out",
                _ if self.overridden.contains(name) => {
                    "agents use the tier from their own --tiers folder unchanged: write the keys into the file there"
                }
                _ => continue,
            };
            return Err(bad_usage(&format!("tiers.{name}"), why));
        }
        Ok(())
    }

    fn of(mut source: Source, mut raw: RawPlan, flags: &Flags, seconds: Option<f64>, share: Share) -> Result<Self> {
        raw.seconds = seconds.unwrap_or(raw.seconds);
        let mut tiers = source.tiers(&raw.tiers)?;
        let kinds = tiers.iter().map(|(name, config)| (name.clone(), kind_of(config)));
        let kinds = kinds.collect();
        let access = access(&raw, share).map_err(|why| source.invalid(why))?;
        let points = cross::points(&raw.cross, &kinds, &access).map_err(|why| source.invalid(why))?;
        tiers.retain(|name, _| points.iter().any(|point| point.tier == *name));
        // A run is resumed with the same plan and the same seconds.
        if let Some(seconds) = seconds {
            source.text += &format!("# --seconds {seconds}\n");
        }
        let repeats = flags.repeats.unwrap_or(raw.repeats);
        let changed = raw.tiers.iter().filter(|(_, tier)| !tier.set.is_empty());
        Ok(Self {
            overridden: changed.map(|(name, _)| name.clone()).collect(),
            common: source.common(flags, (&raw.name, raw.seed, repeats), raw.scratch.as_ref(), tiers),
            points,
            limits: Limits {
                foreign_cpu_share: raw.foreign_cpu_share,
                steal_share: raw.steal_share,
                start_skew_us: raw.start_skew_us,
                ..Limits::default()
            },
            peers: raw.peers.unwrap_or(true),
            access,
        })
    }
}

fn access(raw: &RawPlan, share: Share) -> Result<Access> {
    check_name("name", &raw.name)?;
    check_counts(&[
        ("repeats", u64::from(raw.repeats), 1000),
        ("stride", u64::from(raw.stride), u64::from(u32::MAX)),
    ])?;
    check_within("seconds", raw.seconds, 0.01, 86_400.0)?;
    check_within("warmup_seconds", raw.warmup_seconds, 0.0, 86_400.0)?;
    check_within("precondition_seconds", raw.precondition_seconds, 0.0, 86_400.0)?;
    check_within("exponent", raw.exponent, 0.0, 10.0)?;
    check_within("foreign_cpu_share", raw.foreign_cpu_share, 0.0, 1.0)?;
    check_within("steal_share", raw.steal_share, 0.0, 1.0)?;
    check_within("write_share", raw.write_share, 0.0, 1.0)?;
    Ok(Access {
        seed: raw.seed,
        size: raw.size.0,
        window: Duration::from_secs_f64(raw.seconds),
        warmup: Duration::from_secs_f64(raw.warmup_seconds),
        precondition: Duration::from_secs_f64(raw.precondition_seconds),
        exponent: raw.exponent,
        stride: raw.stride,
        write_share: raw.write_share,
        arrivals: raw.arrivals,
        share,
        ..Access::default()
    })
}

/// Only an nvme tier with one root and no wrappers has local files.
fn kind_of(config: &TierConfig) -> TierKind {
    match config {
        _ if config.kind() == "flight" => TierKind::ReadOnly(config.kind()),
        TierConfig::Nvme(nvme) if nvme.roots.is_empty() => TierKind::Local { direct: nvme.direct },
        _ => TierKind::Other(config.kind()),
    }
}
