//! A model's `config.toml` and `manifest.json` in a Triton-style repository.
//!
//! Layout: `NAME/[config.toml or config.pbtxt]`, `NAME/[manifest.json]`, `NAME/VERSION/model.onnx`. Both files are
//! optional: without them everything is derived from the graph. `config.pbtxt` is Triton's, read by
//! [`pbtxt::model`](crate::pbtxt::model).

mod config;
mod signature;
mod warmup_data;

pub use config::{
    BatchingConfig, DeclaredTensor, InstanceConfig, InstanceKind, JoinedInput, ModelConfig, Reshape, WarmupData,
    WarmupInput, WarmupSample,
};
pub use signature::{JoinedColumn, Reshapes, SessionTensor, Signature, check_batch_axis};
pub use warmup_data::{MAX_INPUT_BYTES, PROBE_ROWS, WarmupTensor, sample_inputs, zero_bytes, zero_inputs};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tierlab_protocol::tensor::TensorSpec;

/// Checks a number, or the length of a list.
fn check_range(key: &str, value: usize, min: usize, max: usize) -> Result<()> {
    match value {
        _ if value < min => bail!("`{key}` must be at least {min}"),
        _ if value > max => bail!("`{key}` is {value}; the limit is {max}"),
        _ => Ok(()),
    }
}

/// The name of the graph's file inside a version folder.
pub const MODEL_FILE: &str = "model.onnx";
/// The name of the config file inside a model's folder.
pub const CONFIG_FILE: &str = "config.toml";
/// The name of Triton's config file inside a model's folder.
pub const TRITON_CONFIG_FILE: &str = "config.pbtxt";
/// Folder of a model with the files of its warm-up samples.
pub const WARMUP_FOLDER: &str = "warmup";
/// The name of the manifest inside a model's folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Prefix of the models on a tier.
pub const MODELS_PREFIX: &str = "models";
/// Prefix of the feature tables on a tier.
pub const FEATURES_PREFIX: &str = "features";

/// True if a model, table or version name is safe as one path segment: letters, digits, `.`, `_`, `-`, at most 128 of them, not
/// starting with a dot.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Manifest of a generated or imported model: `NAME/manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Schema version of this document: 1.
    pub schema_version: u32,
    /// The model's name.
    pub name: String,
    /// Program that wrote it, with version and arguments.
    pub generator: String,
    /// Seed of the weights; `None` for imported models.
    pub seed: Option<u64>,
    /// Inputs of the graph.
    pub inputs: Vec<TensorSpec>,
    /// Outputs of the graph.
    pub outputs: Vec<TensorSpec>,
    /// Files in the model's folder, with their checksums.
    pub files: Vec<ManifestFile>,
}

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Path relative to the model's folder, as `1/model.onnx`.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 as 64 lower-case hex digits.
    pub sha256: String,
}

impl Manifest {
    /// Current schema version.
    pub const SCHEMA_VERSION: u32 = 1;

    /// Reads a manifest.
    ///
    /// # Errors
    /// Invalid JSON, an unknown key or another schema version.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let manifest: Self = serde_json::from_slice(text)?;
        match manifest.schema_version {
            Self::SCHEMA_VERSION => Ok(manifest),
            other => bail!("schema_version {other} is not {}", Self::SCHEMA_VERSION),
        }
    }
}

#[cfg(test)]
mod tests;
