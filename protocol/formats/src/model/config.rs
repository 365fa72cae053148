//! `config.toml`: how a model is served.

use super::batching::BatchingConfig;
use super::instances::InstanceConfig;
use super::reshape::Reshape;
use super::warmup::{self, WarmupSample};
use super::{BadModelFile, check_range, is_plain_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;
use tierlab_protocol::tensor::DataType;

/// Maximum versions that a policy may name.
const MAX_NAMED_VERSIONS: usize = 1024;

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
const KEYS_OF_BATCHES: [&str; 3] = ["max_delay_us", "preferred_rows", "max_request_rows"];

/// Overlays keys on a table, recursively for tables in it.
fn lay_over(table: &mut toml::Table, keys: &toml::Table) {
    for (key, value) in keys {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(keys)) => lay_over(below, keys),
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
    pub fn parse(text: &str) -> Result<Self, BadModelFile> {
        let config: Self = toml::from_str(text).map_err(|e| BadModelFile(e.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// Returns the config with `keys` overlaid, recursively for tables. If `keys` disable batching, the config's keys
    /// of batches are removed.
    ///
    /// # Errors
    /// An unknown key, or a value out of range or in conflict with the rest of the config; the message names the key.
    pub fn with(&self, keys: &toml::Table) -> Result<Self, BadModelFile> {
        let bad = |e: &dyn std::fmt::Display| BadModelFile(e.to_string());
        let mut table = toml::Table::try_from(self).map_err(|e| bad(&e))?;
        let is_unbatched = keys.get("max_batch_size").and_then(toml::Value::as_integer) == Some(0);
        if let Some(toml::Value::Table(batching)) = table.get_mut("batching").filter(|_| is_unbatched) {
            batching.retain(|key, _| !KEYS_OF_BATCHES.contains(&key));
        }
        lay_over(&mut table, keys);
        let config: Self = table.try_into().map_err(|e| bad(&e))?;
        config.check()?;
        Ok(config)
    }

    /// Checks a config from any source.
    ///
    /// # Errors
    /// A value out of range, by key.
    pub fn check(&self) -> Result<(), BadModelFile> {
        match self.problems().into_iter().next() {
            Some((_, problem)) => Err(problem),
            None => Ok(()),
        }
    }

    /// Returns all invalid values, each with its part of the config.
    pub(crate) fn problems(&self) -> Vec<(&'static str, BadModelFile)> {
        let instances = self.instances.as_ref().map_or(Ok(()), InstanceConfig::check);
        let mut checks = vec![
            ("instances", instances),
            ("batching", self.batching.check(self.max_batch_size)),
            ("version_policy", check_version_policy(&self.version_policy)),
            ("warmup", warmup::check(&self.warmup, self.max_batch_size)),
        ];
        checks.extend(self.inputs.iter().map(|tensor| ("inputs", tensor.check_input())));
        checks.extend(self.outputs.iter().map(|tensor| ("outputs", tensor.check())));
        checks.extend(
            self.joined
                .iter()
                .map(|(input, joined)| ("joined", joined.check(input))),
        );
        let bad = |(part, checked): (&'static str, Result<(), BadModelFile>)| Some((part, checked.err()?));
        checks.into_iter().filter_map(bad).collect()
    }

    /// Returns the warm-up samples with the dimensions of the graph, if the config reshapes inputs.
    pub fn graph_warmup(&self) -> Vec<WarmupSample> {
        let mut samples = self.warmup.clone();
        for declared in &self.inputs {
            let Some(Ok(reshape)) = declared.reshape.as_ref().map(|to| Reshape::new(&declared.dims, to)) else {
                continue;
            };
            let inputs = samples
                .iter_mut()
                .filter_map(|sample| sample.inputs.get_mut(&declared.name));
            for dims in inputs.filter_map(|input| input.dims.as_mut()) {
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
    fn check(&self, input: &str) -> Result<(), BadModelFile> {
        if is_plain_name(&self.table) {
            return Ok(());
        }
        Err(BadModelFile(format!(
            "invalid name in `joined.{input}.table`: `{}`; use letters, digits, `.`, `_` and `-`",
            self.table
        )))
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
    fn check_input(&self) -> Result<(), BadModelFile> {
        match self.labels {
            Some(_) => Err(BadModelFile(format!(
                "`labels` of input `{}`: only outputs have classes",
                self.name
            ))),
            None => self.check(),
        }
    }

    /// Checks what can be checked without the graph.
    fn check(&self) -> Result<(), BadModelFile> {
        let Self {
            name, dims, reshape, ..
        } = self;
        for (key, dims) in [("dims", Some(dims)), ("reshape", reshape.as_ref())] {
            if let Some(dim) = dims.into_iter().flatten().find(|&&dim| dim < -1 || dim == 0) {
                return Err(BadModelFile(format!(
                    "`{key}` of `{name}` has {dim}: a dimension is at least 1, or -1 if it is free"
                )));
            }
        }
        match reshape {
            Some(to) => Reshape::new(dims, to)
                .map(drop)
                .map_err(|what| BadModelFile(format!("`reshape` of `{name}`: {what}"))),
            None => Ok(()),
        }
    }
}

fn check_version_policy(policy: &VersionPolicy) -> Result<(), BadModelFile> {
    match policy {
        VersionPolicy::Latest { num_versions: 0 } => Err(BadModelFile(
            "`version_policy.latest.num_versions` must be at least 1".into(),
        )),
        VersionPolicy::Specific { versions } if versions.is_empty() || versions.contains(&0) => Err(BadModelFile(
            "`version_policy.specific.versions` must name at least one version, each at least 1".into(),
        )),
        VersionPolicy::Specific { versions } => check_range(
            "version_policy.specific.versions",
            versions.len(),
            1,
            MAX_NAMED_VERSIONS,
        ),
        _ => Ok(()),
    }
}
