//! The plan of `run` as TOML. In: text. Out: values of the right types, not yet checked against each other. Reads no file.

use super::common::{RawTier, Size, hundredths, mib, number, numbers, only};
use super::point::{CacheState, Operation, Pattern, Way, WriteSync};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlan {
    /// Name of the run, used as prefix of result folders.
    pub(crate) name: String,
    /// Seed of every random choice: content, positions, arrivals, order.
    #[serde(default = "number::<_, 1>")]
    pub(crate) seed: u64,
    /// Repeats of each point.
    #[serde(default = "number::<_, 10>")]
    pub(crate) repeats: u32,
    /// Seconds of each repeat.
    #[serde(default = "hundredths::<100>")]
    pub(crate) seconds: f64,
    /// Uncounted seconds before each repeat.
    #[serde(default = "hundredths::<25>")]
    pub(crate) warmup_seconds: f64,
    /// Seconds of writes before the first repeat of a point that writes.
    #[serde(default)]
    pub(crate) precondition_seconds: f64,
    /// Bytes of all files of the data.
    #[serde(default = "mib::<256>")]
    pub(crate) size: Size,
    /// Folder on the disk that local tiers measure.
    #[serde(default)]
    pub(crate) scratch: Option<PathBuf>,
    /// Exponent of Zipf's law.
    #[serde(default = "hundredths::<100>")]
    pub(crate) exponent: f64,
    /// Blocks from one access of `strided` to the next.
    #[serde(default = "number::<_, 16>")]
    pub(crate) stride: u32,
    /// Share of the accesses of `mixed` that are writes.
    #[serde(default = "hundredths::<30>")]
    pub(crate) write_share: f64,
    /// Gaps between the calls of an open loop.
    #[serde(default)]
    pub(crate) arrivals: Arrivals,
    /// Maximum CPU use of other processes in an undisturbed repeat, as a share of all cores.
    #[serde(default = "hundredths::<10>")]
    pub(crate) foreign_cpu_share: f64,
    /// Maximum CPU steal time in an undisturbed repeat, as a share of all cores.
    #[serde(default = "hundredths::<5>")]
    pub(crate) steal_share: f64,
    /// Maximum skew of the agents' starts in an undisturbed repeat, in microseconds.
    #[serde(default = "number::<_, 2000>")]
    pub(crate) start_skew_us: u64,
    /// If true, installed peers are also measured at the points they support.
    #[serde(default = "yes")]
    pub(crate) peers: bool,
    /// The tiers, by name.
    pub(crate) tiers: BTreeMap<String, RawTier>,
    /// Tables of crossed factors; each gives a set of points.
    pub(crate) cross: Vec<RawCross>,
}

/// Factors: every value of each is crossed with every value of the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCross {
    /// Names of tiers.
    pub(crate) tier: Vec<String>,
    /// Ways of reading.
    #[serde(default = "only")]
    pub(crate) way: Vec<Way>,
    /// Patterns of the positions.
    #[serde(default = "only")]
    pub(crate) pattern: Vec<Pattern>,
    /// Reads, writes, or both; or operations on whole objects.
    #[serde(default = "only")]
    pub(crate) operation: Vec<Operation>,
    /// Bytes of an access; for operations on whole objects, bytes of each object.
    pub(crate) block: Vec<Size>,
    /// Calls in flight.
    #[serde(default = "numbers::<_, 1>")]
    pub(crate) depth: Vec<u32>,
    /// Threads of the runtime; 0 is one per core.
    #[serde(default = "only")]
    pub(crate) threads: Vec<u16>,
    /// Content of the page cache: `cold` or `warm`.
    #[serde(default = "only")]
    pub(crate) cache: Vec<CacheState>,
    /// Durability of blocks written by `pread` and `pread-direct`; a tier's own writes follow the tier.
    #[serde(default = "only")]
    pub(crate) sync: Vec<WriteSync>,
    /// Number of files or objects into which the data is split.
    #[serde(default = "numbers::<_, 1>")]
    pub(crate) files: Vec<u32>,
    /// Calls offered per second; 0 is a closed loop.
    #[serde(default = "only")]
    pub(crate) rate: Vec<u32>,
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

const fn yes() -> bool {
    true
}
