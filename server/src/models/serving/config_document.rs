//! A model's configuration in Triton's form, as it took effect: what the config left out is filled in from the graph.

use super::model::Model;
use crate::inference::session::layout::SessionGroup;
use std::collections::BTreeMap;
use tierlab_formats::model::{DeclaredTensor, MODEL_FILE, Signature, WarmupData, WarmupInput, WarmupSample};
use tierlab_protocol::metadata::{
    ConfigDocument, ConfigParameter, ConfigReshape, ConfigTensor, ConfigWarmup, ConfigWarmupInput, DynamicBatching,
    InstanceGroup, PLATFORM, config_type,
};
use tierlab_protocol::tensor::TensorSpec;

/// Tensors as clients see them, with the shapes of the graph where the config says others.
fn tensors(specs: &[TensorSpec], batched: bool, declared: &[DeclaredTensor]) -> Vec<ConfigTensor> {
    let tensor = |spec: &TensorSpec| {
        let declared = declared.iter().find(|declared| declared.name == spec.name);
        let reshape = declared.and_then(|declared| declared.reshape.clone());
        ConfigTensor {
            reshape: reshape.map(|shape| ConfigReshape { shape }),
            ..ConfigTensor::new(spec, batched)
        }
    };
    specs.iter().map(tensor).collect()
}

impl Model {
    /// `GET /v2/models/M/config`.
    pub(crate) fn config_document(&self) -> ConfigDocument {
        let Signature {
            inputs,
            outputs,
            batched,
        } = &self.signature;
        let config = &self.config;
        let preferred = match config.batching.preferred_rows.as_slice() {
            [] => vec![config.max_batch_size],
            rows => rows.to_vec(),
        };
        let kind = if self.provider == "cuda" {
            "KIND_GPU"
        } else {
            "KIND_CPU"
        };
        // Those of the sessions that answer requests under load.
        let threads = self.layout.last().map(|group| group.threads);
        let threads = threads.map_or([1, 1], |threads| [threads.intra_op, threads.inter_op]);
        let threads = [
            ("intra_op_thread_count", threads[0]),
            ("inter_op_thread_count", threads[1]),
        ];
        let parameter = |(key, threads): (&str, u32)| {
            let string_value = threads.to_string();
            (key.to_owned(), ConfigParameter { string_value })
        };
        ConfigDocument {
            name: self.name.clone(),
            platform: PLATFORM.to_owned(),
            backend: "onnxruntime".to_owned(),
            version_policy: config.version_policy.clone(),
            max_batch_size: self.max_batch_size(),
            input: tensors(inputs, *batched, &config.inputs),
            output: tensors(outputs, *batched, &config.outputs),
            instance_group: self.instance_groups(kind),
            dynamic_batching: batched.then(|| DynamicBatching {
                preferred_batch_size: preferred,
                max_queue_delay_microseconds: config.batching.max_delay_us,
                priority_levels: config.batching.priority_levels,
                default_priority_level: config.batching.default_priority_level,
            }),
            default_model_filename: MODEL_FILE.to_owned(),
            parameters: threads.map(parameter).into(),
            model_warmup: config.warmup.iter().map(|sample| self.warmup(sample)).collect(),
        }
    }

    /// One for each number of threads, which its name then says, as Triton has no field for it.
    fn instance_groups(&self, kind: &str) -> Vec<InstanceGroup> {
        let alike = self.layout.len() == 1;
        let group = |group: &SessionGroup| InstanceGroup {
            name: match group.threads.intra_op {
                _ if alike => self.name.clone(),
                1 => format!("{}.1-thread", self.name),
                threads => format!("{}.{threads}-threads", self.name),
            },
            kind: kind.to_owned(),
            count: group.sessions,
        };
        self.layout.iter().map(group).collect()
    }

    fn warmup(&self, sample: &WarmupSample) -> ConfigWarmup {
        let inputs = sample.inputs.iter();
        let inputs: BTreeMap<String, ConfigWarmupInput> = inputs
            .map(|(name, input)| (name.clone(), self.warmup_input(name, input)))
            .collect();
        ConfigWarmup {
            name: sample.name.clone(),
            batch_size: sample.batch_size,
            count: sample.count,
            inputs,
        }
    }

    fn warmup_input(&self, name: &str, input: &WarmupInput) -> ConfigWarmupInput {
        let spec = self.signature.inputs.iter().find(|spec| spec.name == name);
        let mut document = ConfigWarmupInput {
            data_type: spec.map(|spec| config_type(spec.dtype)).unwrap_or_default(),
            dims: input.dims.clone().unwrap_or_default(),
            ..ConfigWarmupInput::default()
        };
        match &input.data {
            WarmupData::Zero => document.zero_data = true,
            WarmupData::Random => document.random_data = true,
            WarmupData::File(file) => document.input_data_file.clone_from(file),
        }
        document
    }
}
