//! A model's `config.toml` and its `manifest.json`, as they lie in a Triton-style repository.
//!
//! Layout: `NAME/[config.toml or config.pbtxt]`, `NAME/[manifest.json]`, `NAME/VERSION/model.onnx`. Both files are
//! optional: without them everything is derived from the graph. `config.pbtxt` is Triton's, read by
//! [`pbtxt::model`](crate::pbtxt::model).

mod batch_axis;
mod declared;

pub use batch_axis::{FirstDim, check_batch_axis};
pub use declared::{
    DeclaredTensor, InstanceKind, MAX_WARMUP_COUNT, MAX_WARMUP_SAMPLES, WarmupData, WarmupInput, WarmupSample,
};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::VersionPolicy;
use tierlab_protocol::tensor::TensorSpec;

/// The name of the graph's file inside a version folder.
pub const MODEL_FILE: &str = "model.onnx";
/// The name of the config file inside a model's folder.
pub const CONFIG_FILE: &str = "config.toml";
/// The name of Triton's config file inside a model's folder.
pub const TRITON_CONFIG_FILE: &str = "config.pbtxt";
/// The folder of a model that holds the files of its warm-up samples.
pub const WARMUP_FOLDER: &str = "warmup";
/// The name of the manifest inside a model's folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The prefix under which the models lie on a tier.
pub const MODELS_PREFIX: &str = "models";
/// The prefix under which the feature tables lie on a tier.
pub const FEATURES_PREFIX: &str = "features";

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

/// How batches are closed, where `max_batch_size` asks for any, and which requests go first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BatchingConfig {
    /// The longest that a request waits for company while every session is busy or the batch is not full, in microseconds.
    /// 0 closes a batch with whatever is queued.
    pub max_delay_us: u64,
    /// Numbers of rows that close a batch at once, as `[8, 32]` or `32`; the largest is also the most that a batch takes.
    /// Empty, or 0, means `max_batch_size`.
    #[serde(deserialize_with = "one_or_more")]
    pub preferred_rows: Vec<u32>,
    /// Rows of one request at most: it is cut into batches where it has more than `max_batch_size`, and its answers are
    /// joined again. 0 cuts nothing: such a request is refused.
    pub max_request_rows: u32,
    /// Levels of the request parameter `priority`: 1 goes first. 0 passes the parameter over.
    pub priority_levels: u32,
    /// The level of requests that name none, or one that does not exist; 0 means the middle one.
    pub default_priority_level: u32,
    /// How much later a request may have come and still go before one of the next lower level, in microseconds: so
    /// long, and no longer, do the higher levels hold up the lower ones.
    pub priority_step_us: u64,
}

/// Levels of priority at most.
pub const MAX_PRIORITY_LEVELS: u32 = 64;

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

/// The default of `batching.max_delay_us`.
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
        }
    }
}

/// Sessions of one model at most.
pub const MAX_INSTANCES: u32 = 256;
/// Threads of one session at most, inside operators and between them.
pub const MAX_SESSION_THREADS: u32 = 1024;
/// Threads of all sessions of a model at most.
pub const MAX_MODEL_THREADS: u32 = 4096;
/// CPUs that a model's sessions may be pinned to at most.
pub const MAX_CPUS: usize = 4096;
/// Preferred numbers of rows at most.
pub const MAX_PREFERRED_ROWS: usize = 64;
/// Versions that a policy may name at most.
pub const MAX_NAMED_VERSIONS: usize = 1024;

/// How many sessions, with how many threads each. What is left out has the default shown: nothing is fitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InstanceConfig {
    /// Sessions, each on a thread of its own; at least 1, at most [`MAX_INSTANCES`].
    pub count: u32,
    /// ONNX Runtime's intra-op threads of each session; at least 1.
    pub intra_op_threads: u32,
    /// Nodes of the graph that one session runs at the same time; at least 1, which is one after the other.
    pub inter_op_threads: u32,
    /// CPUs that the sessions' threads are pinned to: each session takes the next `intra_op_threads` of them, and the
    /// list begins again at its end. Empty leaves the threads to the system.
    pub cpus: Vec<u32>,
    /// Where they run.
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

/// A config or manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadModelFile(pub String);

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
        declared::check(&config.warmup, config.max_batch_size)?;
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

impl InstanceConfig {
    fn check(&self) -> Result<(), BadModelFile> {
        let threads = [self.intra_op_threads, self.inter_op_threads];
        for (key, value, most) in [
            ("instances.count", self.count, MAX_INSTANCES),
            ("instances.intra_op_threads", threads[0], MAX_SESSION_THREADS),
            ("instances.inter_op_threads", threads[1], MAX_SESSION_THREADS),
        ] {
            if value == 0 {
                return Err(BadModelFile(format!("`{key}` must be at least 1")));
            }
            if value > most {
                return Err(BadModelFile(format!("`{key}` is {value}, the most is {most}")));
            }
        }
        let all = self.count * (threads[0] + threads[1]);
        if all > MAX_MODEL_THREADS {
            return Err(BadModelFile(format!(
                "`instances.count` ({}) times the threads of each session ({} and {}) is {all}, the most is {MAX_MODEL_THREADS}",
                self.count, threads[0], threads[1]
            )));
        }
        if self.cpus.len() > MAX_CPUS {
            let len = self.cpus.len();
            return Err(BadModelFile(format!(
                "`instances.cpus` names {len}, the most is {MAX_CPUS}"
            )));
        }
        Ok(())
    }
}

impl BatchingConfig {
    fn check(&self, max_batch_size: u32) -> Result<(), BadModelFile> {
        if max_batch_size == 0 {
            self.check_unbatched()?;
        }
        if let Some(rows) = self
            .preferred_rows
            .iter()
            .find(|&&rows| rows == 0 || rows > max_batch_size)
        {
            return Err(BadModelFile(format!(
                "`batching.preferred_rows` has {rows}, which is not between 1 and `max_batch_size` ({max_batch_size})"
            )));
        }
        if self.preferred_rows.len() > MAX_PREFERRED_ROWS {
            return Err(BadModelFile(format!(
                "`batching.preferred_rows` has {} numbers, the most is {MAX_PREFERRED_ROWS}",
                self.preferred_rows.len()
            )));
        }
        if self.max_request_rows > 0 && self.max_request_rows < max_batch_size {
            return Err(BadModelFile(format!(
                "`batching.max_request_rows` ({}) is below `max_batch_size` ({max_batch_size})",
                self.max_request_rows
            )));
        }
        if self.priority_levels > MAX_PRIORITY_LEVELS {
            return Err(BadModelFile(format!(
                "`batching.priority_levels` is {}, the most is {MAX_PRIORITY_LEVELS}",
                self.priority_levels
            )));
        }
        if self.default_priority_level > self.priority_levels {
            return Err(BadModelFile(format!(
                "`batching.default_priority_level` ({}) is above `batching.priority_levels` ({})",
                self.default_priority_level, self.priority_levels
            )));
        }
        Ok(())
    }
}

impl BatchingConfig {
    /// Keys that shape batches have no meaning without any: whoever sets them means to have some.
    fn check_unbatched(&self) -> Result<(), BadModelFile> {
        let set = [
            ("max_delay_us", ![0, MAX_DELAY_US].contains(&self.max_delay_us)),
            ("preferred_rows", !self.preferred_rows.is_empty()),
            ("max_request_rows", self.max_request_rows > 0),
        ];
        match set.iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(BadModelFile(format!(
                "`batching.{key}` is set, and `max_batch_size` is not, without which requests are never batched: set it \
                 to the most rows of a run, or leave `batching.{key}` out"
            ))),
            None => Ok(()),
        }
    }
}

/// Whether a model, table or version name is safe as one path segment: letters, digits, `.`, `_`, `-`,
/// at most 128 of them, not starting with a dot.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// What a generated or imported model consists of: `NAME/manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this document's shape: 1.
    pub schema_version: u32,
    /// The model's name.
    pub name: String,
    /// What wrote it, with its version and arguments.
    pub generator: String,
    /// The seed of the weights; none for imported models.
    pub seed: Option<u64>,
    /// Inputs of the graph.
    pub inputs: Vec<TensorSpec>,
    /// Outputs of the graph.
    pub outputs: Vec<TensorSpec>,
    /// Files under the model's folder, with their sums.
    pub files: Vec<ManifestFile>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Relative to the model's folder, as `1/model.onnx`.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 as 64 lower-case hex digits.
    pub sha256: String,
}

impl Manifest {
    /// The current shape of the document.
    pub const SCHEMA_VERSION: u32 = 1;

    /// Reads a manifest.
    ///
    /// # Errors
    /// Bad JSON, an unknown key or another schema version.
    pub fn parse(text: &[u8]) -> Result<Self, BadModelFile> {
        let manifest: Self = serde_json::from_slice(text).map_err(|e| BadModelFile(e.to_string()))?;
        if manifest.schema_version != Self::SCHEMA_VERSION {
            return Err(BadModelFile(format!(
                "schema_version {} is not {}",
                manifest.schema_version,
                Self::SCHEMA_VERSION
            )));
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_empty_config_is_the_default() {
        let config = ModelConfig::parse("").unwrap();
        assert_eq!(config, ModelConfig::default());
        assert_eq!(config.max_batch_size, 0, "nothing is batched without a word");
    }

    #[test]
    fn keys_of_batches_need_a_maximum() {
        for key in ["max_delay_us = 2000", "preferred_rows = 8", "max_request_rows = 64"] {
            let error = ModelConfig::parse(&format!("[batching]\n{key}"))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("max_batch_size") && error.contains(&key[..12]),
                "{error}"
            );
            ModelConfig::parse(&format!("max_batch_size = 8\n[batching]\n{key}")).unwrap();
        }
        ModelConfig::parse("[batching]\npriority_levels = 2").unwrap();
        let written = toml::to_string(&ModelConfig::default()).unwrap();
        assert_eq!(ModelConfig::parse(&written).unwrap(), ModelConfig::default());
    }

    #[test]
    fn instances_are_stated_or_left_to_the_server() {
        let instances = |text: &str| ModelConfig::parse(text).unwrap().instances;
        assert_eq!(instances("max_batch_size = 4"), None);
        assert_eq!(instances("[instances]"), Some(InstanceConfig::default()));
        let two = instances("[instances]\nintra_op_threads = 2").unwrap();
        assert_eq!((two.count, two.intra_op_threads), (1, 2));
        let fitted = toml::to_string(&ModelConfig::default()).unwrap();
        assert!(!fitted.contains("instances"), "{fitted}");
        assert_eq!(ModelConfig::parse(&fitted).unwrap(), ModelConfig::default());
    }

    #[test]
    fn preferred_rows_are_one_number_or_several_and_read_back() {
        for (text, rows) in [("0", &[][..]), ("32", &[32]), ("[8, 32]", &[8, 32])] {
            let config =
                ModelConfig::parse(&format!("max_batch_size = 32\n[batching]\npreferred_rows = {text}")).unwrap();
            assert_eq!(config.batching.preferred_rows, rows);
            let written = toml::to_string(&config).unwrap();
            assert_eq!(ModelConfig::parse(&written).unwrap(), config);
        }
    }

    #[test]
    fn nonsense_is_refused_by_key() {
        let message = |text: &str| ModelConfig::parse(text).unwrap_err().to_string();
        assert!(message("max_batch = 3").contains("max_batch"));
        assert!(message("[[warmup]]\ncount = 0").contains("warmup.count"));
        assert!(message("max_batch_size = 8\n[[warmup]]\nbatch_size = 9").contains("warmup.batch_size"));
        let file = "[[warmup]]\n[warmup.inputs.x]\ndata = { file = \"../x\" }";
        assert!(message(file).contains("warmup.inputs.x.data"));
        assert!(message("[instances]\ncount = 0").contains("instances.count"));
        assert!(message("[joined.image]\ntable = \"../etc\"").contains("joined.image.table"));
        assert!(message("max_batch_size = 2\n[batching]\npreferred_rows = 3").contains("preferred_rows"));
        assert!(message("max_batch_size = 8\n[batching]\npreferred_rows = [4, 0]").contains("preferred_rows"));
        assert!(message("max_batch_size = 8\n[batching]\nmax_request_rows = 3").contains("max_request_rows"));
        assert!(message("[batching]\npriority_levels = 65").contains("priority_levels"));
        assert!(message("[batching]\ndefault_priority_level = 1").contains("default_priority_level"));
        assert!(message("[instances]\ninter_op_threads = 0").contains("instances.inter_op_threads"));
        for (key, value, most) in [
            ("count", "1000000000", "256"),
            ("intra_op_threads", "4294967295", "1024"),
            ("inter_op_threads", "1025", "1024"),
        ] {
            let said = message(&format!("[instances]\n{key} = {value}"));
            let parts = [&format!("instances.{key}"), value, most];
            assert!(parts.iter().all(|part| said.contains(*part)), "{said}");
        }
        let said = message("[instances]\ncount = 100\nintra_op_threads = 100");
        assert!(said.contains("instances.count") && said.contains("4096"), "{said}");
        let rows = format!("max_batch_size = 8\n[batching]\npreferred_rows = {:?}", vec![1; 65]);
        assert!(message(&rows).contains("64"), "{}", message(&rows));
    }

    #[test]
    fn version_policies_choose_among_what_is_there() {
        let there = BTreeSet::from([1, 2, 10]);
        let chosen = |text: &str| {
            let chosen = ModelConfig::parse(text).unwrap().version_policy.choose(&there);
            chosen.into_iter().collect::<Vec<u64>>()
        };
        assert_eq!(chosen(""), [10]);
        assert_eq!(chosen("version_policy = { latest = { num_versions = 2 } }"), [2, 10]);
        assert_eq!(chosen("version_policy = { all = {} }"), [1, 2, 10]);
        assert_eq!(chosen("[version_policy.specific]\nversions = [2, 7]"), [2, 7]);
        for bad in [
            "version_policy = { latest = { num_versions = 0 } }",
            "version_policy = { specific = { versions = [] } }",
            "version_policy = { newest = {} }",
            "version_policy = { all = { x = 1 } }",
        ] {
            assert!(ModelConfig::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_names_stay_in_their_folder() {
        assert!(is_plain_name("resnet-50_v1.5"));
        for bad in ["", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "ä"] {
            assert!(!is_plain_name(bad), "{bad}");
        }
    }
}
