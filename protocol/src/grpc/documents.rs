//! The documents of HTTP as messages.
//!
//! In: what [`metadata`](crate::metadata) describes. Out: messages that say the same.

use super::messages::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelIndex, ModelInput,
    ModelInstanceGroup, ModelMetadataResponse, ModelOutput, ModelParameter, ModelStatistics, ModelTensorReshape,
    ModelVersionPolicy, ModelWarmup, ServerMetadataResponse, StatisticDuration, TensorMetadata,
};
use super::messages::{model_instance_group, model_version_policy, model_warmup};
use crate::metadata::{
    BatchStats, ConfigDocument, ConfigReshape, ConfigWarmup, ConfigWarmupInput, CountNs, DynamicBatching, IndexEntry,
    InferenceStats, InstanceGroup, ModelMetadata, ModelStats, ServerMetadata, VersionPolicy,
};
use crate::tensor::TensorSpec;

impl From<ServerMetadata> for ServerMetadataResponse {
    fn from(document: ServerMetadata) -> Self {
        Self {
            name: document.name,
            version: document.version,
            extensions: document.extensions,
        }
    }
}

impl From<TensorSpec> for TensorMetadata {
    fn from(spec: TensorSpec) -> Self {
        Self {
            name: spec.name,
            datatype: spec.dtype.to_string(),
            shape: spec.shape,
        }
    }
}

impl From<ModelMetadata> for ModelMetadataResponse {
    fn from(document: ModelMetadata) -> Self {
        Self {
            name: document.name,
            versions: document.versions,
            platform: document.platform,
            inputs: document.inputs.into_iter().map(Into::into).collect(),
            outputs: document.outputs.into_iter().map(Into::into).collect(),
        }
    }
}

fn int32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The number of a type that a configuration document names, as `TYPE_FP32`.
fn data_type(name: &str) -> i32 {
    DataType::from_str_name(name).unwrap_or(DataType::TypeInvalid) as i32
}

impl From<ConfigDocument> for ModelConfig {
    fn from(document: ConfigDocument) -> Self {
        let input = document.input.into_iter().map(|tensor| ModelInput {
            data_type: data_type(&tensor.data_type),
            name: tensor.name,
            dims: tensor.dims,
            reshape: tensor.reshape.map(Into::into),
        });
        let output = document.output.into_iter().map(|tensor| ModelOutput {
            data_type: data_type(&tensor.data_type),
            name: tensor.name,
            dims: tensor.dims,
            reshape: tensor.reshape.map(Into::into),
        });
        let parameters = document.parameters.into_iter().map(|(key, parameter)| {
            let string_value = parameter.string_value;
            (key, ModelParameter { string_value })
        });
        Self {
            name: document.name,
            platform: document.platform,
            backend: document.backend,
            version_policy: Some(document.version_policy.into()),
            max_batch_size: int32(document.max_batch_size),
            input: input.collect(),
            output: output.collect(),
            instance_group: document.instance_group.into_iter().map(Into::into).collect(),
            dynamic_batching: document.dynamic_batching.map(Into::into),
            default_model_filename: document.default_model_filename,
            parameters: parameters.collect(),
            model_warmup: document.model_warmup.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ConfigReshape> for ModelTensorReshape {
    fn from(reshape: ConfigReshape) -> Self {
        Self { shape: reshape.shape }
    }
}

impl From<ConfigWarmup> for ModelWarmup {
    fn from(warmup: ConfigWarmup) -> Self {
        let inputs = warmup.inputs.into_iter().map(|(name, input)| (name, input.into()));
        Self {
            name: warmup.name,
            batch_size: warmup.batch_size,
            inputs: inputs.collect(),
            count: warmup.count,
        }
    }
}

impl From<ConfigWarmupInput> for model_warmup::Input {
    fn from(input: ConfigWarmupInput) -> Self {
        use model_warmup::input::InputDataType;
        let choice = match input.input_data_file {
            file if !file.is_empty() => InputDataType::InputDataFile(file),
            _ if input.random_data => InputDataType::RandomData(true),
            _ => InputDataType::ZeroData(true),
        };
        Self {
            data_type: data_type(&input.data_type),
            dims: input.dims,
            input_data_type: Some(choice),
        }
    }
}

impl From<VersionPolicy> for ModelVersionPolicy {
    fn from(policy: VersionPolicy) -> Self {
        use model_version_policy::{All, Latest, PolicyChoice, Specific};
        let choice = match policy {
            VersionPolicy::Latest { num_versions } => PolicyChoice::Latest(Latest { num_versions }),
            VersionPolicy::All {} => PolicyChoice::All(All {}),
            VersionPolicy::Specific { versions } => {
                let versions = versions
                    .into_iter()
                    .map(|version| i64::try_from(version).unwrap_or(i64::MAX));
                PolicyChoice::Specific(Specific {
                    versions: versions.collect(),
                })
            }
        };
        Self {
            policy_choice: Some(choice),
        }
    }
}

impl From<InstanceGroup> for ModelInstanceGroup {
    fn from(group: InstanceGroup) -> Self {
        use model_instance_group::Kind;
        let kind = Kind::from_str_name(&group.kind).unwrap_or(Kind::Auto);
        Self {
            name: group.name,
            count: int32(group.count),
            kind: kind as i32,
        }
    }
}

impl From<DynamicBatching> for ModelDynamicBatching {
    fn from(batching: DynamicBatching) -> Self {
        Self {
            preferred_batch_size: batching.preferred_batch_size.into_iter().map(int32).collect(),
            max_queue_delay_microseconds: batching.max_queue_delay_microseconds,
            priority_levels: batching.priority_levels.into(),
            default_priority_level: batching.default_priority_level.into(),
        }
    }
}

impl From<IndexEntry> for ModelIndex {
    fn from(entry: IndexEntry) -> Self {
        Self {
            name: entry.name,
            version: entry.version,
            state: entry.state,
            reason: entry.reason,
        }
    }
}

impl From<CountNs> for StatisticDuration {
    fn from(sum: CountNs) -> Self {
        Self {
            count: sum.count,
            ns: sum.ns,
        }
    }
}

impl From<InferenceStats> for InferStatistics {
    fn from(stats: InferenceStats) -> Self {
        Self {
            success: Some(stats.success.into()),
            fail: Some(stats.fail.into()),
            queue: Some(stats.queue.into()),
            compute_input: Some(stats.compute_input.into()),
            compute_infer: Some(stats.compute_infer.into()),
            compute_output: Some(stats.compute_output.into()),
            cache_hit: Some(stats.cache_hit.into()),
            cache_miss: Some(stats.cache_miss.into()),
        }
    }
}

impl From<BatchStats> for InferBatchStatistics {
    fn from(stats: BatchStats) -> Self {
        Self {
            batch_size: stats.batch_size,
            compute_input: Some(stats.compute_input.into()),
            compute_infer: Some(stats.compute_infer.into()),
            compute_output: Some(stats.compute_output.into()),
        }
    }
}

impl From<ModelStats> for ModelStatistics {
    fn from(stats: ModelStats) -> Self {
        Self {
            name: stats.name,
            version: stats.version,
            last_inference: stats.last_inference,
            inference_count: stats.inference_count,
            execution_count: stats.execution_count,
            inference_stats: Some(stats.inference_stats.into()),
            batch_stats: stats.batch_stats.into_iter().map(Into::into).collect(),
        }
    }
}
