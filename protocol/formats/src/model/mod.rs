//! A model's `config.toml` and its `manifest.json`, as they lie in a Triton-style repository.
//!
//! Layout: `NAME/[config.toml or config.pbtxt]`, `NAME/[manifest.json]`, `NAME/VERSION/model.onnx`. Both files are
//! optional: without them everything is derived from the graph. `config.pbtxt` is Triton's, read by
//! [`pbtxt::model`](crate::pbtxt::model).

mod batch_axis;
mod batching;
mod config;
mod instances;
mod manifest;
mod reshape;
mod signature;
mod warmup;
mod warmup_data;

pub use batch_axis::{FirstDim, check_batch_axis};
pub use batching::{BatchingConfig, MAX_PREFERRED_ROWS, MAX_PRIORITY_LEVELS};
pub use config::{DeclaredTensor, JoinedInput, MAX_NAMED_VERSIONS, ModelConfig};
pub use instances::{InstanceConfig, InstanceKind, MAX_CPUS, MAX_INSTANCES, MAX_MODEL_THREADS, MAX_SESSION_THREADS};
pub use manifest::{Manifest, ManifestFile};
pub use reshape::Reshape;
pub use signature::{JoinedColumn, Reshapes, SessionTensor, Signature};
pub use warmup::{MAX_WARMUP_COUNT, MAX_WARMUP_SAMPLES, WarmupData, WarmupInput, WarmupSample};
pub use warmup_data::{MAX_INPUT_BYTES, PROBE_ROWS, WarmupTensor, sample_inputs, zero_bytes, zero_inputs};

/// A config or manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadModelFile(pub String);

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

/// True if a model, table or version name is safe as one path segment: letters, digits, `.`, `_`, `-`, at most 128 of them, not
/// starting with a dot.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests;
