//! `config.toml`: how a model is served.

use super::{check_range, is_plain_name};
use crate::toml_error::plain;
use anyhow::{Result, anyhow, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;
use tierlab_protocol::tensor::{DataType, element_count};

/// Maximum versions that a policy may name.
const MAX_VERSIONS: usize = 1024;

/// Model settings: `NAME/config.toml`. Every key has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Maximum rows in one run of the session. 0 (the default) means unbatched: each request is a separate run,
    /// whatever its shapes. Other values declare that the first dimension of every input and output is a batch of
    /// independent rows.
    pub max_batch_size: u32,
    /// Batching settings.
    pub batching: BatchingConfig,
    /// Number of sessions and their threads. If absent, the server sizes them for its cores and the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<InstanceConfig>,
    /// Inputs read from a feature table when the client sends `entity_id`, by input name.
    pub joined: BTreeMap<String, JoinedInput>,
    /// Versions in the model's folder to serve.
    #[serde(skip_serializing_if = "VersionPolicy::is_default")]
    pub version_policy: VersionPolicy,
    /// Inputs that the graph must have; others are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<DeclaredTensor>,
    /// Outputs that the graph must have; others are served as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<DeclaredTensor>,
    /// Runs before a version takes requests. If empty, it runs once on zeros, and a failure is only reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<WarmupSample>,
}

/// An input that the server can read from a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinedInput {
    /// Table: `features/TABLE.rows` on the feature tier.
    pub table: String,
    /// Column of the table (default: the input's name).
    #[serde(default)]
    pub column: Option<String>,
}

/// Keys of `[batching]` without effect if batching is disabled.
const BATCHING_KEYS: [&str; 3] = ["max_delay_us", "preferred_rows", "max_request_rows"];

/// Overlays keys on a table, recursively for tables in it.
fn overlay(table: &mut toml::Table, keys: &toml::Table) {
    for (key, value) in keys {
        // A version policy is one choice: another replaces it.
        let inside = table.get_mut(key).filter(|_| key != "version_policy");
        match (inside, value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(keys)) => overlay(inner, keys),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

impl ModelConfig {
    /// Reads and validates a `config.toml`.
    ///
    /// # Errors
    /// Bad TOML, an unknown key, or a value out of range; the message names the key and, for syntax, the line.
    pub fn parse(text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|e| anyhow!(plain(&e.to_string())))?;
        config.check()?;
        Ok(config)
    }

    /// Returns the config with `keys` overlaid, recursively for tables. If `keys` disable batching, the config's keys
    /// of batches are removed.
    ///
    /// # Errors
    /// An unknown key, or a value out of range or in conflict with the rest of the config; the message names the key.
    pub fn with(&self, keys: &toml::Table) -> Result<Self> {
        let mut table = toml::Table::try_from(self)?;
        let is_unbatched = keys.get("max_batch_size").and_then(toml::Value::as_integer) == Some(0);
        if let Some(toml::Value::Table(batching)) = table.get_mut("batching").filter(|_| is_unbatched) {
            batching.retain(|key, _| !BATCHING_KEYS.contains(&key));
        }
        overlay(&mut table, keys);
        let config = table.try_into::<Self>().map_err(|e| anyhow!(plain(&e.to_string())))?;
        config.check()?;
        Ok(config)
    }

    /// Checks a config from any source.
    ///
    /// # Errors
    /// A value out of range, by key.
    pub fn check(&self) -> Result<()> {
        let first = self.problems().into_iter().next();
        first.map_or(Ok(()), |(_, problem)| Err(problem))
    }

    /// Returns all invalid values, each with its part of the config.
    pub(crate) fn problems(&self) -> Vec<(&'static str, anyhow::Error)> {
        let instances = self.instances.as_ref().map_or(Ok(()), InstanceConfig::check);
        let mut checks = vec![
            ("instances", instances),
            ("batching", self.batching.check(self.max_batch_size)),
            ("version_policy", check_version_policy(&self.version_policy)),
            ("warmup", check_warmup(&self.warmup, self.max_batch_size)),
        ];
        checks.extend(self.inputs.iter().map(|tensor| ("inputs", tensor.check(true))));
        checks.extend(self.outputs.iter().map(|tensor| ("outputs", tensor.check(false))));
        let joined = self.joined.iter();
        checks.extend(joined.map(|(input, joined)| ("joined", joined.check(input))));
        let bad = |(part, checked): (&'static str, Result<()>)| Some((part, checked.err()?));
        checks.into_iter().filter_map(bad).collect()
    }

    /// Returns the warm-up samples with the dimensions of the graph, if the config reshapes inputs.
    pub fn graph_warmup(&self) -> Vec<WarmupSample> {
        let mut samples = self.warmup.clone();
        for declared in &self.inputs {
            let Some(Ok(reshape)) = declared.reshape.as_ref().map(|to| Reshape::new(&declared.dims, to)) else {
                continue;
            };
            let inputs = samples.iter_mut().map(|sample| sample.inputs.get_mut(&declared.name));
            for dims in inputs.filter_map(|input| input?.dims.as_mut()) {
                // Other dimensions than the declared ones are unchanged: the run refuses them by name.
                if let Some(in_graph) = reshape.apply(dims) {
                    *dims = in_graph;
                }
            }
        }
        samples
    }
}

impl JoinedInput {
    fn check(&self, input: &str) -> Result<()> {
        let table = &self.table;
        match is_plain_name(table) {
            true => Ok(()),
            false => bail!("invalid name in `joined.{input}.table`: `{table}`; use letters, digits, `.`, `_` and `-`"),
        }
    }
}

/// Tensor that the graph must have. If a dimension is free in the graph, a number here narrows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTensor {
    /// Name of the tensor.
    pub name: String,
    /// Data type of the tensor.
    pub datatype: DataType,
    /// Dimensions as clients see them; -1 is free. Without the batch dimension, unless `max_batch_size` is 0.
    pub dims: Vec<i64>,
    /// Dimensions in the graph if they differ, as `[]` for a scalar that clients send as `[1]`: the same number of
    /// elements and of free dimensions, in the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshape: Option<Vec<i64>>,
    /// File in the model's folder with the names of an output's classes, one per line, for requests with
    /// `classification`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
}

impl DeclaredTensor {
    /// Checks what can be checked without the graph.
    fn check(&self, is_input: bool) -> Result<()> {
        let (name, dims, reshape) = (&self.name, &self.dims, self.reshape.as_ref());
        if is_input && self.labels.is_some() {
            bail!("`labels` of input `{name}`: only outputs have classes");
        }
        for (key, dims) in [("dims", Some(dims)), ("reshape", reshape)] {
            if let Some(dim) = dims.into_iter().flatten().find(|&&dim| dim < -1 || dim == 0) {
                bail!("`{key}` of `{name}` has {dim}: a dimension is at least 1, or -1 if it is free");
            }
        }
        if let Some(to) = reshape {
            Reshape::new(dims, to).map_err(|what| anyhow!("`reshape` of `{name}`: {what}"))?;
        }
        Ok(())
    }
}

fn check_version_policy(policy: &VersionPolicy) -> Result<()> {
    match policy {
        VersionPolicy::Latest { num_versions: 0 } => bail!("`version_policy.latest.num_versions` must be at least 1"),
        VersionPolicy::Specific { versions } if versions.is_empty() || versions.contains(&0) => {
            bail!("`version_policy.specific.versions` must name at least one version, each at least 1")
        }
        VersionPolicy::Specific { versions } => {
            check_range("version_policy.specific.versions", versions.len(), 1, MAX_VERSIONS)
        }
        _ => Ok(()),
    }
}

/// Maximum number of preferred row counts.
const MAX_PREFERRED: usize = 64;

/// Batching settings, used if `max_batch_size` allows batches, request priorities and the limits of the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingConfig {
    /// Maximum time that a request waits for others while every session is busy or the batch is not full, in
    /// microseconds. 0 closes a batch with the requests queued at that moment.
    pub max_delay_us: u64,
    /// Row counts that close a batch at once, as `[8, 32]` or `32`; the largest is also the maximum of a batch. Empty,
    /// or 0, means `max_batch_size`.
    #[serde(deserialize_with = "one_or_more")]
    pub preferred_rows: Vec<u32>,
    /// Maximum rows of one request. A request of more than `max_batch_size` rows is cut into batches, and its answers
    /// are joined. 0 refuses such requests.
    pub max_request_rows: u32,
    /// Levels of the request parameter `priority`: 1 goes first. 0 ignores the parameter.
    pub priority_levels: u32,
    /// Level of requests without a level, or with one that does not exist; 0 means the middle one.
    pub default_priority_level: u32,
    /// Delay by which a request may arrive later and still run before one of the next lower level, in microseconds. It limits
    /// how long higher levels delay lower ones.
    pub priority_step_us: u64,
    /// Maximum waiting requests, counting each part of a cut one: at least the parts of the largest; another is refused with
    /// 503. 0 leaves the limit to `admission.max_in_flight`.
    pub queue_limit: u32,
    /// Maximum time that a request waits for a session, in microseconds; then it is refused with 504. 0 sets no limit
    /// besides the request's own.
    pub queue_timeout_us: u64,
    /// If true, the request parameter `timeout` limits the time of its request; if false, it is ignored.
    pub allow_timeout_override: bool,
}

/// Maximum number of priority levels.
const MAX_PRIORITY_LEVELS: usize = 64;

fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Rows {
        One(u32),
        Several(Vec<u32>),
    }
    Ok(match Rows::deserialize(deserializer)? {
        Rows::One(0) => Vec::new(),
        Rows::One(rows) => vec![rows],
        Rows::Several(rows) => rows,
    })
}

/// Default of `batching.max_delay_us`.
const MAX_DELAY_US: u64 = 500;

impl Default for BatchingConfig {
    fn default() -> Self {
        Self {
            max_delay_us: MAX_DELAY_US,
            preferred_rows: Vec::new(),
            max_request_rows: 0,
            priority_levels: 0,
            default_priority_level: 0,
            priority_step_us: 100_000,
            queue_limit: 0,
            queue_timeout_us: 0,
            allow_timeout_override: true,
        }
    }
}

impl BatchingConfig {
    fn check(&self, max_batch_size: u32) -> Result<()> {
        if max_batch_size == 0 {
            self.check_unbatched()?;
        }
        let is_row_count = |rows: &u32| (1..=max_batch_size).contains(rows);
        check_range("batching.preferred_rows", self.preferred_rows.len(), 0, MAX_PREFERRED)?;
        let (limit, rows) = (self.queue_limit, self.max_request_rows);
        let parts = rows.div_ceil(max_batch_size.max(1));
        let (levels, default_level) = (self.priority_levels, self.default_priority_level);
        check_range("batching.priority_levels", levels as usize, 0, MAX_PRIORITY_LEVELS)?;
        if let Some(rows) = self.preferred_rows.iter().find(|rows| !is_row_count(rows)) {
            bail!(
                "`batching.preferred_rows` has {rows}, which is not between 1 and `max_batch_size` ({max_batch_size})"
            );
        }
        if (1..max_batch_size).contains(&rows) {
            bail!("`batching.max_request_rows` ({rows}) is below `max_batch_size` ({max_batch_size})");
        }
        if (1..parts).contains(&limit) {
            bail!(
                "`batching.queue_limit` ({limit}) is below the {parts} parts of a request with `batching.max_request_rows` \
                 ({rows}): raise it, or lower `batching.max_request_rows`"
            );
        }
        ensure!(
            default_level <= levels,
            "`batching.default_priority_level` ({default_level}) is above `batching.priority_levels` ({levels})"
        );
        Ok(())
    }

    /// Refuses keys that shape batches if batching is disabled, because they would have no effect.
    fn check_unbatched(&self) -> Result<()> {
        let set = [
            ("max_delay_us", ![0, MAX_DELAY_US].contains(&self.max_delay_us)),
            ("preferred_rows", !self.preferred_rows.is_empty()),
            ("max_request_rows", self.max_request_rows > 0),
        ];
        if let Some((key, _)) = set.iter().find(|(_, set)| *set) {
            bail!(
                "`batching.{key}` has no effect without `max_batch_size`: set `max_batch_size` \
                 to the maximum rows of a run, or remove `batching.{key}`"
            );
        }
        Ok(())
    }
}

/// Maximum sessions of a model.
const MAX_INSTANCES: usize = 256;
/// Maximum threads of a session, inside operators and between them.
const MAX_SESSION_THREADS: usize = 1024;
/// Maximum threads of all sessions of a model.
const MAX_MODEL_THREADS: u32 = 4096;
/// Maximum CPUs to pin a model's sessions to.
const MAX_CPUS: usize = 4096;

/// Number and threads of the sessions. Without this table the server sizes them for its cores. With it, absent keys
/// have the defaults shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceConfig {
    /// Number of sessions, each on its own thread; 1 to 256.
    pub count: u32,
    /// ONNX Runtime's intra-op threads of each session; at least 1.
    pub intra_op_threads: u32,
    /// Graph nodes that a session runs at the same time; at least 1 (sequential).
    pub inter_op_threads: u32,
    /// CPUs to pin the sessions' threads to: each session takes the next `intra_op_threads` of them, starting again at
    /// the end of the list. Empty leaves the threads to the system.
    pub cpus: Vec<u32>,
    /// Device of the sessions (default: `"auto"`).
    #[serde(skip_serializing_if = "InstanceKind::is_auto")]
    pub kind: InstanceKind,
}

impl Default for InstanceConfig {
    fn default() -> Self {
        Self {
            count: 1,
            intra_op_threads: 1,
            inter_op_threads: 1,
            cpus: Vec::new(),
            kind: InstanceKind::Auto,
        }
    }
}

impl InstanceConfig {
    fn check(&self) -> Result<()> {
        let (count, intra, inter) = (self.count, self.intra_op_threads, self.inter_op_threads);
        check_range("instances.count", count as usize, 1, MAX_INSTANCES)?;
        check_range("instances.intra_op_threads", intra as usize, 1, MAX_SESSION_THREADS)?;
        check_range("instances.inter_op_threads", inter as usize, 1, MAX_SESSION_THREADS)?;
        check_range("instances.cpus", self.cpus.len(), 0, MAX_CPUS)?;
        let threads = count * (intra + inter);
        ensure!(
            threads <= MAX_MODEL_THREADS,
            "`instances.count` ({count}) times the threads of each session ({intra} and {inter}) is {threads}; the \
             limit is {MAX_MODEL_THREADS}"
        );
        Ok(())
    }
}

/// Device of a model's sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// Chosen by the server's `runtime.provider`.
    #[default]
    Auto,
    /// Sessions on the CPU.
    Cpu,
    /// Sessions on the GPU; the model is refused without one.
    Gpu,
}

impl InstanceKind {
    /// True if the server decides.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Map from the dimensions of one side to those of the other: as many elements, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshape {
    from: Vec<i64>,
    to: Vec<i64>,
}

impl Reshape {
    /// Maps shapes like `from` to shapes like `to`, where -1 is a free dimension: the first free one becomes the first
    /// free one, and so on.
    ///
    /// # Errors
    /// Shapes that differ in their number of free dimensions, or in their elements before, between or after them.
    pub fn new(from: &[i64], to: &[i64]) -> Result<Self> {
        ensure!(
            elements(from) == elements(to),
            "{from:?} cannot be reshaped to {to:?}: both need the same number of free dimensions (-1), and of elements \
             before, between and after them"
        );
        Ok(Self {
            from: from.to_vec(),
            to: to.to_vec(),
        })
    }

    /// Returns the other side's shape of a tensor; `None` if `shape` does not fit this side's.
    pub fn apply(&self, shape: &[i64]) -> Option<Vec<i64>> {
        let mut pairs = shape.iter().zip(&self.from);
        if shape.len() != self.from.len() || !pairs.clone().all(|(have, &want)| want < 0 || *have == want) {
            return None;
        }
        // The sizes of free dimensions, in their order.
        let mut free = || pairs.find(|(_, want)| **want < 0).map(|(&have, _)| have);
        let dims = self.to.iter().map(|&dim| if dim < 0 { free() } else { Some(dim) });
        dims.collect()
    }
}

/// Elements of the fixed dimensions before the first free one, between two, and after the last; `None` for a product
/// that overflows.
fn elements(shape: &[i64]) -> Vec<Option<usize>> {
    shape.split(|&dim| dim < 0).map(element_count).collect()
}

/// Runs before a version takes requests. A version is refused if a run fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupSample {
    /// Name for messages.
    #[serde(default)]
    pub name: String,
    /// Rows of each run.
    #[serde(default = "one")]
    pub batch_size: u32,
    /// Number of runs.
    #[serde(default = "one")]
    pub count: u32,
    /// Values by input. An absent input gets zeros, with its free dimensions as 1.
    #[serde(default)]
    pub inputs: BTreeMap<String, WarmupInput>,
}

/// One input of a [`WarmupSample`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmupInput {
    /// Dimensions of one row (default: those of the graph, free ones as 1).
    #[serde(default)]
    pub dims: Option<Vec<i64>>,
    /// Elements of one row.
    pub data: WarmupData,
}

/// The elements of a [`WarmupInput`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WarmupData {
    /// Zeros; empty strings.
    Zero,
    /// Random elements: floats from 0 to 1, integers of any value.
    Random,
    /// Raw little-endian elements of one row, from this file in the model's folder `warmup`.
    File(String),
}

/// Maximum warm-up samples of a model.
const MAX_WARMUP_SAMPLES: usize = 64;
/// Maximum runs of a warm-up sample.
const MAX_WARMUP_COUNT: u32 = 10_000;

fn one() -> u32 {
    1
}

/// Checks what can be checked without the graph.
fn check_warmup(samples: &[WarmupSample], max_batch_size: u32) -> Result<()> {
    check_range("warmup", samples.len(), 0, MAX_WARMUP_SAMPLES)?;
    for sample in samples {
        let (name, rows, count) = (&sample.name, sample.batch_size, sample.count);
        if !(1..=max_batch_size.max(1)).contains(&rows) {
            bail!(
                "`warmup.batch_size` of `{name}` is {rows}, which is not between 1 and `max_batch_size` ({max_batch_size})"
            );
        }
        if !(1..=MAX_WARMUP_COUNT).contains(&count) {
            bail!("`warmup.count` of `{name}` is {count}, which is not between 1 and {MAX_WARMUP_COUNT}");
        }
        for (input, declared) in &sample.inputs {
            if declared.dims.iter().flatten().any(|&dim| dim < 0) {
                bail!("`warmup.inputs.{input}.dims` of `{name}` has a negative dimension");
            }
            if let WarmupData::File(file) = &declared.data
                && !is_plain_name(file)
            {
                bail!("`warmup.inputs.{input}.data` of `{name}`: invalid name of a file in `warmup/`: `{file}`");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn free_dimensions_go_in_their_order_and_elements_stay_as_many() {
        for (from, to, shape, reshaped) in [
            (&[1][..], &[][..], &[1][..], Some(&[][..])),
            (&[], &[1, 1], &[], Some(&[1, 1])),
            (&[-1, 1], &[-1], &[5, 1], Some(&[5])),
            (&[-1, 4, -1], &[-1, 2, 2, -1], &[3, 4, 7], Some(&[3, 2, 2, 7])),
            (&[-1, 4], &[-1, 2, 2], &[3, 5], None),
            (&[-1, 4], &[-1, 2, 2], &[3], None),
        ] {
            let rule = Reshape::new(from, to).unwrap();
            assert_eq!(rule.apply(shape).as_deref(), reshaped, "{from:?} {to:?} {shape:?}");
        }
        for (from, to) in [
            (&[2][..], &[][..]),
            (&[-1], &[]),
            (&[-1, 4], &[4, -1]),
            (&[-1, 4], &[-1, -1]),
        ] {
            let error = Reshape::new(from, to).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{from:?} cannot be reshaped to {to:?}")),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_reshaped_comes_back(from in prop::collection::vec(prop_oneof![Just(-1_i64), 1..5_i64], 0..5), sizes in prop::collection::vec(0..9_i64, 5)) {
            let mut to = from.clone();
            to.insert(0, 1);
            let shape: Vec<i64> = from.iter().zip(&sizes).map(|(&dim, &size)| if dim < 0 { size } else { dim }).collect();
            let there = Reshape::new(&from, &to).unwrap().apply(&shape).unwrap();
            prop_assert_eq!(there.iter().product::<i64>(), shape.iter().product::<i64>());
            prop_assert_eq!(Reshape::new(&to, &from).unwrap().apply(&there).unwrap(), shape);
        }
    }
}
