//! `config.toml`: how a model is served.

use super::batching::BatchingConfig;
use super::declared::DeclaredTensor;
use super::error::BadModelFile;
use super::instances::InstanceConfig;
use super::names::is_plain_name;
use super::warmup::{self, WarmupSample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;

/// Versions that a policy may name at most.
pub const MAX_NAMED_VERSIONS: usize = 1024;

/// How a model is served: `NAME/config.toml`. Every key has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// The most rows in one run of the session. 0, as without this key: the model is unbatched. Each request is a run of
    /// its own then, whatever its shapes. Other values say that the first dimension of every input and output is a batch
    /// of rows that do not depend on each other.
    pub max_batch_size: u32,
    /// How batches are closed.
    pub batching: BatchingConfig,
    /// How many sessions, with how many threads each; left out, the server fits them to its cores and to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<InstanceConfig>,
    /// Inputs read from a feature table when the client sends `entity_id`, by input name.
    pub joined: BTreeMap<String, JoinedInput>,
    /// Which of the versions that lie in the model's folder are served.
    #[serde(skip_serializing_if = "VersionPolicy::is_default")]
    pub version_policy: VersionPolicy,
    /// Inputs that the graph must have; others are not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<DeclaredTensor>,
    /// Outputs that the graph must have; others are served as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<DeclaredTensor>,
    /// Runs before a version takes requests. Without any it runs once on zeros, and a failure there is only noted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<WarmupSample>,
}

/// An input that the server can read from a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedInput {
    /// The table: `features/TABLE.rows` on the feature tier.
    pub table: String,
    /// The column of the table; the input's own name when left out.
    #[serde(default)]
    pub column: Option<String>,
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

    /// Checks what a config says, wherever it was read from.
    ///
    /// # Errors
    /// A value out of range, by key.
    pub fn check(&self) -> Result<(), BadModelFile> {
        let config = self;
        if let Some(instances) = &config.instances {
            instances.check()?;
        }
        config.batching.check(config.max_batch_size)?;
        check_version_policy(&config.version_policy)?;
        warmup::check(&config.warmup, config.max_batch_size)?;
        for (input, joined) in &config.joined {
            if !is_plain_name(&joined.table) {
                return Err(BadModelFile(format!(
                    "`joined.{input}.table` = `{}` is no plain name (letters, digits, `.`, `_`, `-`)",
                    joined.table
                )));
            }
        }
        Ok(())
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
        VersionPolicy::Specific { versions } if versions.len() > MAX_NAMED_VERSIONS => Err(BadModelFile(format!(
            "`version_policy.specific.versions` names {}, the most is {MAX_NAMED_VERSIONS}",
            versions.len()
        ))),
        _ => Ok(()),
    }
}
