//! Documents besides inference that are not gRPC messages: model metadata, loads, errors. Health, server metadata,
//! configuration, statistics and the index are [`messages`](crate::grpc::messages) written as JSON.
//!
//! In: fields. Out: the JSON that KServe's and Triton's clients read, and back, for the load generator. Sources: the Open
//! Inference Protocol v2, and Triton's `extension_model_configuration.md`, `extension_statistics.md` and
//! `extension_model_repository.md`. `batched`, `max_batch_size` and `joined` in the model metadata are Tierlab's own.

use crate::tensor::{DataType, TensorSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of the tensor of ids that a client sends for joined inputs: INT64, or BYTES if the table's keys are texts or
/// UUIDs; shape `[n]` or `[n, 1]`.
pub const ENTITY_ID: &str = "entity_id";
/// Platform of every model, as Triton names it.
pub const PLATFORM: &str = "onnxruntime_onnx";

/// `GET /v2/models/M/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReady {
    /// Name of the model.
    pub name: String,
    /// True if the model accepts requests.
    pub ready: bool,
}

/// Body of every error reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// Error message.
    pub error: String,
}

/// `GET /v2/models/M`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// Name of the model.
    pub name: String,
    /// Versions served.
    pub versions: Vec<String>,
    /// [`PLATFORM`].
    pub platform: String,
    /// Inputs of the graph.
    pub inputs: Vec<TensorSpec>,
    /// Outputs of the graph.
    pub outputs: Vec<TensorSpec>,
    /// True if the model's config lets requests share a run, as rows of one batch; `None` from servers that do not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batched: Option<bool>,
    /// Maximum rows of a run; 0 if unbatched. `None` from servers that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch_size: Option<u32>,
    /// Values read from a feature table when the client sends [`ENTITY_ID`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinedMetadata>,
}

/// Feature table behind a model's joined inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedMetadata {
    /// Name of the table.
    pub table: String,
    /// Smallest entity id.
    pub first_id: i64,
    /// Rows; ids run `first_id .. first_id + rows`.
    pub rows: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u32,
    /// Inputs read from the table.
    pub inputs: Vec<String>,
    /// Type of entity keys; `None` if ids run from `first_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyMetadata>,
}

/// Keys of a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMetadata {
    /// Source column of the keys.
    pub column: String,
    /// `int64`, `string` or `uuid`.
    pub kind: String,
    /// Data type of [`ENTITY_ID`]: INT64 or BYTES.
    pub datatype: DataType,
    /// Bytes of the longest key.
    pub max_bytes: u32,
    /// Memory of the key index in the server, in bytes.
    pub index_bytes: u64,
}

/// Reply to `POST /v2/repository/models/M/load`. Triton's reply is empty; its clients read no body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadDocument {
    /// Model name.
    pub model: String,
    /// Versions loaded by this call, lowest first.
    pub versions: Vec<VersionLoad>,
}

/// Report of one version's load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionLoad {
    /// The version.
    pub version: String,
    /// Always `READY`.
    pub state: String,
    /// Time of each part.
    pub seconds: LoadSeconds,
    /// True if the sessions were built from a previously optimised graph.
    pub optimized: bool,
}

/// Stages of a cold start, in seconds. They do not overlap and sum to the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSeconds {
    /// Reading the files from the model tier.
    pub read: f64,
    /// Verifying checksums after the reading, and looking for an optimised graph.
    pub verify: f64,
    /// Writing weights to a local disk for ONNX Runtime to map, and verifying them, after the reading; 0 if weights are
    /// used from memory.
    pub place: f64,
    /// Building the sessions: deserialising and optimising the graph. Includes the measured runs of fitted sessions.
    pub session: f64,
    /// Warm-up runs of the slowest session.
    pub warmup: f64,
    /// Opening the feature table.
    pub features: f64,
}

/// Versions of a model that are served at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum VersionPolicy {
    /// The highest versions.
    Latest {
        /// Number of versions; at least 1.
        num_versions: u32,
    },
    /// All versions in the model's folder.
    All {},
    /// Only the listed versions.
    Specific {
        /// Versions; at least one, and each must exist.
        versions: Vec<u64>,
    },
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest { num_versions: 1 }
    }
}

impl VersionPolicy {
    /// True for the default policy.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the versions of `available` to serve, ascending. Versions named by [`VersionPolicy::Specific`]
    /// are included even if they are missing.
    pub fn choose(&self, available: &BTreeSet<u64>) -> BTreeSet<u64> {
        match self {
            Self::Latest { num_versions } => available.iter().rev().take(*num_versions as usize).copied().collect(),
            Self::All {} => available.clone(),
            Self::Specific { versions } => versions.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TensorSpec {
        TensorSpec {
            name: "x".into(),
            dtype: DataType::Fp32,
            shape: vec![-1, 64],
        }
    }

    #[test]
    fn metadata_is_what_the_protocol_writes() {
        let mut metadata = ModelMetadata {
            name: "mlp".into(),
            versions: vec!["1".into()],
            platform: PLATFORM.into(),
            inputs: vec![spec()],
            outputs: vec![],
            batched: None,
            max_batch_size: None,
            joined: None,
        };
        let json = serde_json::to_string(&metadata).unwrap();
        assert_eq!(
            json,
            r#"{"name":"mlp","versions":["1"],"platform":"onnxruntime_onnx","inputs":[{"name":"x","datatype":"FP32","shape":[-1,64]}],"outputs":[]}"#
        );
        (metadata.batched, metadata.max_batch_size) = (Some(true), Some(256));
        metadata.joined = Some(JoinedMetadata {
            table: "ctr".into(),
            first_id: 0,
            rows: 100_000,
            row_bytes: 512,
            inputs: vec!["dense".into()],
            key: None,
        });
        let json = serde_json::to_string(&metadata).unwrap();
        assert!(
            json.ends_with(
                r#""outputs":[],"batched":true,"max_batch_size":256,"joined":{"table":"ctr","first_id":0,"rows":100000,"row_bytes":512,"inputs":["dense"]}}"#
            )
        );
        assert_eq!(serde_json::from_str::<ModelMetadata>(&json).unwrap(), metadata);
    }
}
