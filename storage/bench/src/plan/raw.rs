//! A plan as its TOML has it. In: text. Out: values of the right kinds, not yet held against each other. Reads no file.

use super::point::{Operation, Pattern, Way};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_instrument::units::parse_bytes;

/// A plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlan {
    /// Its name, which folders of results begin with.
    pub(crate) name: String,
    /// Names every random choice: content, positions, arrivals, order.
    #[serde(default = "one")]
    pub(crate) seed: u64,
    /// Repeats of each point.
    #[serde(default = "ten")]
    pub(crate) repeats: u32,
    /// Seconds of each repeat.
    #[serde(default = "second")]
    pub(crate) seconds: f64,
    /// Seconds before each of them that do not count.
    #[serde(default = "quarter")]
    pub(crate) warmup_seconds: f64,
    /// Bytes of the data, of all its files together.
    #[serde(default = "size")]
    pub(crate) size: Size,
    /// A folder on the disk that local tiers measure.
    #[serde(default)]
    pub(crate) scratch: Option<PathBuf>,
    /// Exponent of Zipf's law.
    #[serde(default = "second")]
    pub(crate) exponent: f64,
    /// Blocks from one access of `strided` to the next.
    #[serde(default = "sixteen")]
    pub(crate) stride: u32,
    /// Share of the accesses of `mixed` that are writes.
    #[serde(default = "third")]
    pub(crate) write_share: f64,
    /// Gaps between the calls of an open loop.
    #[serde(default)]
    pub(crate) arrivals: Arrivals,
    /// CPU that other processes may use before a repeat counts as disturbed, as a share of all cores.
    #[serde(default = "tenth")]
    pub(crate) foreign_cpu_share: f64,
    /// Time that the hypervisor may give to others, likewise.
    #[serde(default = "twentieth")]
    pub(crate) steal_share: f64,
    /// Whether peers that are installed are measured beside the points that they can do.
    #[serde(default = "yes")]
    pub(crate) peers: bool,
    /// The tiers, by name.
    pub(crate) tiers: BTreeMap<String, RawTier>,
    /// What is crossed with each other. Several tables are several sets of points.
    pub(crate) cross: Vec<RawCross>,
}

/// A tier of a plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTier {
    /// Its TOML, from the plan's folder.
    pub(crate) file: PathBuf,
    /// Keys of it that are other here.
    #[serde(default)]
    pub(crate) set: Vec<String>,
}

/// Factors: every value of each with every value of the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCross {
    /// Names of tiers.
    pub(crate) tier: Vec<String>,
    /// How bytes are got.
    #[serde(default = "by_tier")]
    pub(crate) way: Vec<Way>,
    /// Where accesses go.
    #[serde(default = "random")]
    pub(crate) pattern: Vec<Pattern>,
    /// Reads, writes, or both.
    #[serde(default = "reads")]
    pub(crate) operation: Vec<Operation>,
    /// Bytes of an access.
    pub(crate) block: Vec<Size>,
    /// Calls in flight.
    #[serde(default = "one_call")]
    pub(crate) depth: Vec<u32>,
    /// Threads of the runtime; 0 is one per core.
    #[serde(default = "per_core")]
    pub(crate) threads: Vec<u16>,
    /// What the page cache holds.
    #[serde(default = "cold")]
    pub(crate) cache: Vec<Cache>,
    /// Files that the data is cut into.
    #[serde(default = "one_file")]
    pub(crate) files: Vec<u32>,
    /// Calls offered per second; 0 is a closed loop.
    #[serde(default = "closed")]
    pub(crate) rate: Vec<u32>,
}

/// What the page cache is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cache {
    /// Nothing of the data.
    Cold,
    /// The data.
    Warm,
}

/// Gaps between due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Arrivals {
    /// Exponential ones: callers that know nothing of each other.
    #[default]
    Poisson,
    /// All the same.
    Constant,
}

/// Bytes: a number, or text as `4KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => parse_bytes(&text).map(Self).map_err(serde::de::Error::custom),
        }
    }
}

const fn one() -> u64 {
    1
}
const fn ten() -> u32 {
    10
}
const fn sixteen() -> u32 {
    16
}
const fn second() -> f64 {
    1.0
}
const fn quarter() -> f64 {
    0.25
}
const fn third() -> f64 {
    0.3
}
const fn twentieth() -> f64 {
    0.05
}
const fn tenth() -> f64 {
    0.1
}
const fn yes() -> bool {
    true
}
const fn size() -> Size {
    Size(256 << 20)
}
fn by_tier() -> Vec<Way> {
    vec![Way::Tier]
}
fn random() -> Vec<Pattern> {
    vec![Pattern::Random]
}
fn reads() -> Vec<Operation> {
    vec![Operation::Read]
}
fn cold() -> Vec<Cache> {
    vec![Cache::Cold]
}
fn one_call() -> Vec<u32> {
    vec![1]
}
fn one_file() -> Vec<u32> {
    vec![1]
}
fn per_core() -> Vec<u16> {
    vec![0]
}
fn closed() -> Vec<u32> {
    vec![0]
}
