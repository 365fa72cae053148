//! The documents beside inference: health, server and model metadata, configuration, statistics, the index, errors.
//!
//! In: fields. Out: the JSON that KServe's and Triton's clients read, and back, for the load generator. Sources: the Open
//! Inference Protocol v2, and Triton's `extension_model_configuration.md`, `extension_statistics.md` and
//! `extension_model_repository.md`. `batched`, `max_batch_size` and `joined` in the model metadata are Tierlab's own.

mod version_policy;

use crate::tensor::{DataType, TensorSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use version_policy::VersionPolicy;

/// The name of the tensor of ids that a client sends for joined inputs: INT64, or BYTES where the table's keys are texts or
/// UUIDs; shape `[n]` or `[n, 1]`.
pub const ENTITY_ID: &str = "entity_id";
/// The platform of every model, as Triton names it.
pub const PLATFORM: &str = "onnxruntime_onnx";

/// `GET /v2/health/live`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// True if the process answers.
    pub live: bool,
}

/// `GET /v2/health/ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// True if the models are loaded and the server accepts requests.
    pub ready: bool,
}

/// `GET /v2/models/M/ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReady {
    /// The model.
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

/// `GET /v2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// The server's name.
    pub name: String,
    /// Version of the load generator.
    pub version: String,
    /// The protocol's extensions that it speaks.
    pub extensions: Vec<String>,
}

/// `GET /v2/models/M`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// The model.
    pub name: String,
    /// The versions served.
    pub versions: Vec<String>,
    /// [`PLATFORM`].
    pub platform: String,
    /// Inputs of the graph.
    pub inputs: Vec<TensorSpec>,
    /// Outputs of the graph.
    pub outputs: Vec<TensorSpec>,
    /// True if the model's config lets requests share a run, row behind row; `None` from servers that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batched: Option<bool>,
    /// Rows of a run at most; 0 where it is not batched. None from servers that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch_size: Option<u32>,
    /// Values read from a feature table when the client sends [`ENTITY_ID`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinedMetadata>,
}

/// The feature table behind a model's joined inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedMetadata {
    /// The table.
    pub table: String,
    /// The smallest entity id.
    pub first_id: i64,
    /// Rows; ids run `first_id .. first_id + rows`.
    pub rows: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u32,
    /// The inputs that it fills.
    pub inputs: Vec<String>,
    /// Type of entity keys; `None` if ids run from `first_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyMetadata>,
}

/// The keys of a feature table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMetadata {
    /// The column that they were taken from.
    pub column: String,
    /// `int64`, `string` or `uuid`.
    pub kind: String,
    /// The data type of [`ENTITY_ID`]: INT64 or BYTES.
    pub datatype: DataType,
    /// Bytes of the longest key.
    pub max_bytes: u32,
    /// Bytes of memory that the index of keys takes in the server.
    pub index_bytes: u64,
}

/// `GET /v2/models/M/config`, in the shape of Triton's `ModelConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDocument {
    /// The model.
    pub name: String,
    /// [`PLATFORM`].
    pub platform: String,
    /// `onnxruntime`.
    pub backend: String,
    /// Which versions are served.
    #[serde(default)]
    pub version_policy: VersionPolicy,
    /// Rows of one run at most, and of one request unless the config allows larger ones to be cut; 0 where the model is
    /// not batched.
    pub max_batch_size: u32,
    /// Inputs of the model.
    pub input: Vec<ConfigTensor>,
    /// Outputs of the model.
    pub output: Vec<ConfigTensor>,
    /// Sessions of the model.
    pub instance_group: Vec<InstanceGroup>,
    /// Batching settings; absent without batching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_batching: Option<DynamicBatching>,
    /// `model.onnx`.
    #[serde(default)]
    pub default_model_filename: String,
    /// Settings of the backend: its threads.
    #[serde(default)]
    pub parameters: BTreeMap<String, ConfigParameter>,
    /// Runs before a version takes requests.
    #[serde(default)]
    pub model_warmup: Vec<ConfigWarmup>,
}

/// A setting in a [`ConfigDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigParameter {
    /// Its value.
    pub string_value: String,
}

/// A warm-up sample in a [`ConfigDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigWarmup {
    /// Its name.
    pub name: String,
    /// Rows of each run.
    pub batch_size: u32,
    /// Number of runs.
    pub count: u32,
    /// Values by input.
    pub inputs: BTreeMap<String, ConfigWarmupInput>,
}

/// An input of a [`ConfigWarmup`]; one of the last three is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigWarmupInput {
    /// `TYPE_FP32`, `TYPE_STRING`, …
    pub data_type: String,
    /// Dimensions of one row.
    pub dims: Vec<i64>,
    /// All values are zero.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero_data: bool,
    /// Random elements.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub random_data: bool,
    /// A file in the model's folder `warmup`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input_data_file: String,
}

/// An input or output in a [`ConfigDocument`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigTensor {
    /// Its name.
    pub name: String,
    /// `TYPE_FP32`, `TYPE_STRING`, …
    pub data_type: String,
    /// Dimensions, without the batch dimension where there is one.
    pub dims: Vec<i64>,
    /// Those of the graph, where they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshape: Option<ConfigReshape>,
}

/// The dimensions of a tensor in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReshape {
    /// Without the batch dimension where there is one.
    pub shape: Vec<i64>,
}

impl ConfigTensor {
    /// A tensor as Triton's configuration writes it; `batched` leaves the first dimension out.
    #[must_use]
    pub fn new(spec: &TensorSpec, batched: bool) -> Self {
        let data_type = config_type(spec.dtype);
        let dims = spec.shape.get(usize::from(batched)..).unwrap_or_default().to_vec();
        Self {
            name: spec.name.clone(),
            data_type,
            dims,
            reshape: None,
        }
    }
}

/// A data type as Triton's configuration names it.
#[must_use]
pub fn config_type(dtype: DataType) -> String {
    match dtype {
        DataType::Bytes => "TYPE_STRING".to_owned(),
        dtype => format!("TYPE_{dtype}"),
    }
}

/// Sessions of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// The model.
    pub name: String,
    /// `KIND_CPU` or `KIND_GPU`.
    pub kind: String,
    /// Number of sessions.
    pub count: u32,
}

/// Batching settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicBatching {
    /// Rows that close a batch at once.
    pub preferred_batch_size: Vec<u32>,
    /// The longest wait for other requests.
    pub max_queue_delay_microseconds: u64,
    /// Levels of the request parameter `priority`; 0 without any.
    #[serde(default)]
    pub priority_levels: u32,
    /// The level of requests that name none; 0 without levels.
    #[serde(default)]
    pub default_priority_level: u32,
}

/// One line of `POST /v2/repository/index`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The model.
    pub name: String,
    /// The version; empty where none was ever loaded.
    pub version: String,
    /// `READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty for a model that was never loaded.
    pub state: String,
    /// Why it is not served; of a version that is, why a newer copy was refused.
    pub reason: String,
}

/// Reply to `POST /v2/repository/models/M/load`. Triton's reply is empty; its clients read no body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadDocument {
    /// Model name.
    pub model: String,
    /// The versions that were loaded by this call, lowest first.
    pub versions: Vec<VersionLoad>,
}

/// Report of one version's load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VersionLoad {
    /// The version.
    pub version: String,
    /// `READY`.
    pub state: String,
    /// Time of each part.
    pub seconds: LoadSeconds,
    /// True if the sessions were built from a graph that had been optimised before.
    pub optimized: bool,
}

/// The stages of a cold start, in seconds. They follow one another and sum to the whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSeconds {
    /// Reading the files from the model tier.
    pub read: f64,
    /// Checking their sums, as far as that went on after the reading, and looking for an optimised graph.
    pub verify: f64,
    /// Writing weights to a local disk for ONNX Runtime to map, their sums checked on the way, as far as that went on after
    /// the reading; 0 where weights are taken from memory.
    pub place: f64,
    /// Deserialising and optimising the graph: building the sessions.
    pub session: f64,
    /// Warm-up runs.
    pub warmup: f64,
    /// Opening the feature table.
    pub features: f64,
}

/// `GET /v2/models/M/stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsDocument {
    /// One entry per model and version.
    pub model_stats: Vec<ModelStats>,
}

/// The statistics of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStats {
    /// The model.
    pub name: String,
    /// Version of the load generator.
    pub version: String,
    /// Milliseconds since the epoch of the last request; 0 without one.
    pub last_inference: u64,
    /// Rows inferred.
    pub inference_count: u64,
    /// Runs of the sessions.
    pub execution_count: u64,
    /// Counts and times.
    pub inference_stats: InferenceStats,
    /// The sessions' runs that went well, by batch size.
    pub batch_stats: Vec<BatchStats>,
}

/// Runs of one batch size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStats {
    /// Rows of each run.
    pub batch_size: u64,
    /// Laying the batches out.
    pub compute_input: CountNs,
    /// ONNX Runtime.
    pub compute_infer: CountNs,
    /// Cutting the outputs.
    pub compute_output: CountNs,
}

/// Counts and summed times of a model's requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceStats {
    /// Requests answered well, and their server time.
    pub success: CountNs,
    /// Requests not answered well, and their server time.
    pub fail: CountNs,
    /// Admission and batch queue.
    pub queue: CountNs,
    /// Decoding and feature join.
    pub compute_input: CountNs,
    /// ONNX Runtime.
    pub compute_infer: CountNs,
    /// Time for encoding replies.
    pub compute_output: CountNs,
    /// Triton's cache of whole replies, which is not offered: always zero.
    #[serde(default)]
    pub cache_hit: CountNs,
    /// Same as `cache_hit`, for misses.
    #[serde(default)]
    pub cache_miss: CountNs,
}

/// A count and its summed time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountNs {
    /// Number of events.
    pub count: u64,
    /// Nanoseconds in all.
    pub ns: u64,
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

    #[test]
    fn configuration_leaves_the_batch_dimension_out() {
        let batched = ConfigTensor::new(&spec(), true);
        assert_eq!((batched.data_type.as_str(), batched.dims), ("TYPE_FP32", vec![64]));
        assert_eq!(ConfigTensor::new(&spec(), false).dims, [-1, 64]);
        let text = TensorSpec {
            dtype: DataType::Bytes,
            shape: vec![],
            ..spec()
        };
        assert_eq!(ConfigTensor::new(&text, true).data_type, "TYPE_STRING");
    }
}
