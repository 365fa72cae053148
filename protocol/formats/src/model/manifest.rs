//! `manifest.json`: what a model consists of.

use super::BadModelFile;
use serde::{Deserialize, Serialize};
use tierlab_protocol::tensor::TensorSpec;

/// Manifest of a generated or imported model: `NAME/manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this document's shape: 1.
    pub schema_version: u32,
    /// The model's name.
    pub name: String,
    /// Program that wrote it, with version and arguments.
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
