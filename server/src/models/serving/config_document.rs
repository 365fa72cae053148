//! Model configuration in Triton's form, as in effect: keys missing from the config are filled in from the graph.

use super::Model;
use crate::inference::session::layout::SessionGroup;
use tierlab_formats::model::{DeclaredTensor, MODEL_FILE, WarmupData, WarmupInput, WarmupSample};
use tierlab_protocol::grpc::messages::model_instance_group::Kind;
use tierlab_protocol::grpc::messages::model_warmup::Input;
use tierlab_protocol::grpc::messages::model_warmup::input::InputDataType;
use tierlab_protocol::grpc::messages::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelInstanceGroup, ModelOutput, ModelParameter,
    ModelQueuePolicy, ModelWarmup,
};
use tierlab_protocol::metadata::PLATFORM;
use tierlab_protocol::tensor::TensorSpec;

fn int32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Device of sessions that run on a provider.
fn kind_of(provider: &str) -> Kind {
    if provider == "cpu" { Kind::Cpu } else { Kind::Gpu }
}

impl Model {
    /// `GET /v2/models/M/config`.
    pub(crate) fn config_document(&self) -> ModelConfig {
        let (config, signature) = (&self.config, &self.signature);
        let preferred = match config.batching.preferred_rows.as_slice() {
            [] => vec![config.max_batch_size],
            rows => rows.to_vec(),
        };
        // Threads of the sessions that serve under load.
        let threads = self.layout.last().map(|group| group.threads);
        let threads = threads.map_or([1, 1], |threads| [threads.intra_op, threads.inter_op]);
        let threads = [
            ("intra_op_thread_count", threads[0]),
            ("inter_op_thread_count", threads[1]),
        ];
        let parameter = |(key, threads): (&str, u32)| {
            let string_value = threads.to_string();
            (key.to_owned(), ModelParameter { string_value })
        };
        let batching = &config.batching;
        let queue_policy = ModelQueuePolicy {
            default_timeout_microseconds: batching.queue_timeout_us,
            allow_timeout_override: batching.allow_timeout_override,
            max_queue_size: batching.queue_limit,
        };
        let has_policy = batching.queue_timeout_us > 0 || batching.queue_limit > 0;
        ModelConfig {
            name: self.name.clone(),
            platform: PLATFORM.to_owned(),
            backend: "onnxruntime".to_owned(),
            version_policy: Some(config.version_policy.clone().into()),
            max_batch_size: int32(self.config.max_batch_size),
            input: self.tensors(&signature.inputs, &config.inputs).collect(),
            output: self.outputs(),
            instance_group: self.instance_groups(),
            dynamic_batching: signature.batched.then(|| ModelDynamicBatching {
                preferred_batch_size: preferred.into_iter().map(int32).collect(),
                max_queue_delay_microseconds: batching.max_delay_us,
                priority_levels: batching.priority_levels.into(),
                default_priority_level: batching.default_priority_level.into(),
                default_queue_policy: has_policy.then_some(queue_policy),
            }),
            default_model_filename: MODEL_FILE.to_owned(),
            parameters: threads.map(parameter).into(),
            model_warmup: config.warmup.iter().map(|sample| self.warmup(sample)).collect(),
        }
    }

    /// Tensors as clients see them, with the graph's shapes if the config has different ones.
    fn tensors(&self, specs: &[TensorSpec], declared: &[DeclaredTensor]) -> impl Iterator<Item = ModelInput> {
        specs.iter().map(|spec| {
            let declared = declared.iter().find(|declared| declared.name == spec.name);
            let reshape = declared.and_then(|declared| declared.reshape.clone());
            ModelInput::new(spec, self.signature.batched, reshape)
        })
    }

    fn outputs(&self) -> Vec<ModelOutput> {
        let declared = &self.config.outputs;
        let output = |tensor: ModelInput| {
            let labels = declared.iter().find(|declared| declared.name == tensor.name);
            ModelOutput {
                label_filename: labels.and_then(|declared| declared.labels.clone()).unwrap_or_default(),
                ..tensor.into()
            }
        };
        self.tensors(&self.signature.outputs, declared).map(output).collect()
    }

    /// One group for each number of threads, which its name contains, because Triton has no field for it.
    fn instance_groups(&self) -> Vec<ModelInstanceGroup> {
        let kind = kind_of(self.provider);
        let single_group = self.layout.len() == 1;
        let group = |group: &SessionGroup| ModelInstanceGroup {
            name: match group.threads.intra_op {
                _ if single_group => self.name.clone(),
                1 => format!("{}.1-thread", self.name),
                threads => format!("{}.{threads}-threads", self.name),
            },
            kind: kind.into(),
            count: int32(group.sessions),
        };
        self.layout.iter().map(group).collect()
    }

    fn warmup(&self, sample: &WarmupSample) -> ModelWarmup {
        let input = |(name, input): (&String, &WarmupInput)| {
            let spec = self.signature.inputs.iter().find(|spec| spec.name == *name);
            let input = Input {
                data_type: spec.map_or(DataType::TypeInvalid, |spec| spec.dtype.into()).into(),
                dims: input.dims.clone().unwrap_or_default(),
                input_data_type: Some(match &input.data {
                    WarmupData::Zero => InputDataType::ZeroData(true),
                    WarmupData::Random => InputDataType::RandomData(true),
                    WarmupData::File(file) => InputDataType::InputDataFile(file.clone()),
                }),
            };
            (name.clone(), input)
        };
        ModelWarmup {
            name: sample.name.clone(),
            batch_size: sample.batch_size,
            count: sample.count,
            inputs: sample.inputs.iter().map(input).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_but_the_cpu_is_a_gpu() {
        assert_eq!(
            ["cpu", "cuda", "tensorrt"].map(kind_of),
            [Kind::Cpu, Kind::Gpu, Kind::Gpu]
        );
    }
}
