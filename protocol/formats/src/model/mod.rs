//! A model's `config.toml` and its `manifest.json`, as they lie in a Triton-style repository.
//!
//! Layout: `NAME/[config.toml or config.pbtxt]`, `NAME/[manifest.json]`, `NAME/VERSION/model.onnx`. Both files are
//! optional: without them everything is derived from the graph. `config.pbtxt` is Triton's, read by
//! [`pbtxt::model`](crate::pbtxt::model).

mod batch_axis;
mod batching;
mod config;
mod declared;
mod error;
mod instances;
mod manifest;
mod names;
mod reshape;
mod signature;
mod warmup;
mod warmup_data;

pub use batch_axis::{FirstDim, check_batch_axis};
pub use batching::{BatchingConfig, MAX_PREFERRED_ROWS, MAX_PRIORITY_LEVELS};
pub use config::{JoinedInput, MAX_NAMED_VERSIONS, ModelConfig};
pub use declared::DeclaredTensor;
pub use error::BadModelFile;
pub use instances::{InstanceConfig, InstanceKind, MAX_CPUS, MAX_INSTANCES, MAX_MODEL_THREADS, MAX_SESSION_THREADS};
pub use manifest::{Manifest, ManifestFile};
pub use names::{
    CONFIG_FILE, FEATURES_PREFIX, MANIFEST_FILE, MODEL_FILE, MODELS_PREFIX, TRITON_CONFIG_FILE, WARMUP_FOLDER,
    is_plain_name,
};
pub use reshape::Reshape;
pub use signature::{JoinedColumn, Reshapes, SessionTensor, Signature};
pub use warmup::{MAX_WARMUP_COUNT, MAX_WARMUP_SAMPLES, WarmupData, WarmupInput, WarmupSample};
pub use warmup_data::{MAX_INPUT_BYTES, PROBE_ROWS, WarmupTensor, sample_inputs, zero_bytes, zero_inputs};

#[cfg(test)]
mod tests;
