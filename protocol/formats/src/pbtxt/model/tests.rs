//! Files as they lie in Triton repositories, and those that are refused.

use super::*;
use crate::model::{DeclaredTensor, InstanceKind, WarmupData};
use proptest::prelude::*;
use tierlab_protocol::tensor::DataType;

const WHOLE: &str = r#"
# As an exporter writes it.
name: "resnet"
platform: "onnxruntime_onnx"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: 64
version_policy: { specific { versions: [1, 3] } }
input [
  {
    name: "image"
    data_type: TYPE_UINT8
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
  },
  { name: "text" data_type: TYPE_STRING dims: -1 }
]
output { name: "scores", data_type: TYPE_FP16, dims: [ 1000 ], label_filename: "labels.txt" }
output { name: "more", data_type: TYPE_FP32, dims: [ 1 ], label_filename: "" }
dynamic_batching {
  preferred_batch_size: [ 8, 16 ]
  max_queue_delay_microseconds: 100
  priority_levels: 3
  default_priority_level: 2
  preserve_ordering: false
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 2000 max_queue_size: 9 }
}
instance_group [ { count: 2 kind: KIND_CPU }, { name: "more" count: 1 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value: { string_value: "4" } }
parameters [ { key: "execution_mode" value { string_value: "0" } } ]
optimization { graph { level: 0 } }
model_warmup [
  {
    name: "full" batch_size: 64 count: 3
    inputs { key: "image" value: { data_type: TYPE_UINT8 dims: [3, 224, 224] random_data: true } }
    inputs { key: "text" value: { data_type: TYPE_STRING dims: [5] input_data_file: "text.bin" } }
  }
]
"#;

fn read(text: &str) -> anyhow::Result<ModelConfig> {
    model_config(text, "resnet")
}

#[test]
fn a_whole_file_maps() {
    let config = read(WHOLE).unwrap();
    assert_eq!(config.max_batch_size, 64);
    assert_eq!(config.version_policy, VersionPolicy::Specific { versions: vec![1, 3] });
    assert_eq!(config.inputs.len(), 2);
    assert_eq!(
        config.inputs[1],
        DeclaredTensor {
            name: "text".into(),
            datatype: DataType::Bytes,
            dims: vec![-1],
            reshape: None,
            labels: None,
        }
    );
    assert_eq!(config.outputs[0].datatype, DataType::Fp16);
    assert_eq!(config.outputs[0].labels.as_deref(), Some("labels.txt"));
    assert_eq!(config.outputs[1].labels, None);
    assert_eq!(
        (config.batching.preferred_rows.clone(), config.batching.max_delay_us),
        (vec![8, 16], 100)
    );
    assert_eq!(
        (config.batching.priority_levels, config.batching.default_priority_level),
        (3, 2)
    );
    let batching = &config.batching;
    let policy = (
        batching.queue_timeout_us,
        batching.queue_limit,
        batching.allow_timeout_override,
    );
    assert_eq!(policy, (2000, 9, false));
    let instances = config.instances.as_ref().unwrap();
    assert_eq!((instances.count, instances.kind), (3, InstanceKind::Cpu));
    assert_eq!((instances.intra_op_threads, instances.inter_op_threads), (4, 1));
    let sample = &config.warmup[0];
    assert_eq!((sample.name.as_str(), sample.batch_size, sample.count), ("full", 64, 3));
    assert_eq!(sample.inputs["image"].data, WarmupData::Random);
    assert_eq!(sample.inputs["text"].data, WarmupData::File("text.bin".into()));
    assert_eq!(sample.inputs["text"].dims, Some(vec![5]));
    // And it can be written as TOML, which says the same.
    assert_eq!(ModelConfig::parse(&toml::to_string(&config).unwrap()).unwrap(), config);
}

#[test]
fn what_is_left_out_means_what_it_means_to_triton() {
    let bare = read("backend: 'onnxruntime'").unwrap();
    assert!(bare.batching.allow_timeout_override, "without a policy");
    let policy = |inner: &str| {
        let batching = format!("max_batch_size: 2 dynamic_batching {{ default_queue_policy {{ {inner} }} }}");
        read(&batching).unwrap().batching.allow_timeout_override
    };
    assert!(!policy("") && policy("allow_timeout_override: true"));
    assert_eq!((bare.max_batch_size, bare.batching.max_delay_us), (0, 0));
    assert_eq!((bare.version_policy, bare.instances), (VersionPolicy::default(), None));
    let tensors = read("input { name: 'x' data_type: TYPE_FP32 dims: 4 }").unwrap();
    assert_eq!(tensors.max_batch_size, 0);
    let none = read("max_batch_size: 0 dynamic_batching { max_queue_delay_microseconds: 100 }").unwrap();
    assert_eq!((none.max_batch_size, none.batching.max_delay_us), (0, 0));
    assert_eq!(
        read("version_policy { latest { } }").unwrap().version_policy,
        VersionPolicy::default()
    );
    assert_eq!(
        read("version_policy { all { } }").unwrap().version_policy,
        VersionPolicy::All {}
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn what_does_not_map_is_refused_by_line_column_and_key() {
    for (text, expected) in [
        (
            "name: \"other\"",
            "line 1, column 7: `name`: `other` is not the name of its folder, `resnet`",
        ),
        (
            "\n  platform: \"tensorrt_plan\"",
            "line 2, column 13: `platform`: `tensorrt_plan`",
        ),
        ("backend: \"python\"", "`backend`: `python`"),
        ("default_model_filename: \"net.onnx\"", "`default_model_filename`"),
        ("max_batch_size: -1", "`max_batch_size`: -1 is out of range"),
        ("max_batch_size: 1.5", "`max_batch_size`: a whole number"),
        (
            "max_batch_size: 1 max_batch_size: 2",
            "line 1, column 35: `max_batch_size`: duplicate field",
        ),
        (
            "sequence_batching { }",
            "`sequence_batching`: sequences are not supported: make the state",
        ),
        (
            "ensemble_scheduling { step [] }",
            "`ensemble_scheduling`: ensembles are not supported: serve one graph",
        ),
        (
            "cc_model_filenames { key: 'a' value: 'b' }",
            "`cc_model_filenames`: not supported",
        ),
        (
            "input { name: 'x' data_type: TYPE_FP32 dims: 2 reshape { shape: [] } }",
            "`input.reshape`: [2] cannot be reshaped to []",
        ),
        (
            "input { name: 'x' data_type: TYPE_FP8 }",
            "`input.data_type`: unknown data type: `TYPE_FP8`",
        ),
        ("input { name: 'x' data_type: TYPE_BYTES }", "`TYPE_BYTES`"),
        ("input { name: 'x' data_type: 11 }", "`input.data_type`"),
        ("input { name: 'x' data_type: TYPE_FP32 dims: 0 }", "`input.dims`"),
        (
            "input { name: 'x' data_type: TYPE_FP32 allow_ragged_batch: true }",
            "`input.allow_ragged_batch`",
        ),
        ("input { data_type: TYPE_FP32 }", "`input`: `name` is missing"),
        ("input { name: 'x' }", "`data_type` of `x` is missing"),
        ("input: 5", "`input`: a message"),
        (
            "input { name: 'x' data_type: TYPE_FP32 label_filename: 'l.txt' }",
            "`labels` of input `x`: only outputs have classes",
        ),
        (
            "input { name: 'x' data_type: TYPE_FP32 format: NCHW }",
            "`input.format`",
        ),
        (
            "dynamic_batching { preserve_ordering: true }",
            "`dynamic_batching.preserve_ordering`",
        ),
        (
            "dynamic_batching { default_queue_policy { timeout_action: DELAY } }",
            "`dynamic_batching.default_queue_policy.timeout_action`: only REJECT",
        ),
        (
            "dynamic_batching { priority_queue_policy { } }",
            "`dynamic_batching.priority_queue_policy`",
        ),
        (
            "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 8 ] }",
            "preferred_rows",
        ),
        (
            "dynamic_batching { max_queue_delay_microseconds: 100 }",
            "line 1, column 18: `dynamic_batching`: `max_batch_size` is missing",
        ),
        (
            "instance_group { kind: KIND_MODEL }",
            "`instance_group.kind`: `KIND_MODEL`",
        ),
        (
            "instance_group { kind: KIND_GPU gpus: [0, 1] }",
            "`instance_group.gpus`: only GPU 0",
        ),
        (
            "instance_group [ { kind: KIND_GPU }, { kind: KIND_CPU } ]",
            "`instance_group`: groups of different kinds",
        ),
        ("instance_group { host_policy: 'a' }", "`instance_group.host_policy`"),
        (
            "version_policy { latest { num_versions: 0 } }",
            "line 1, column 16: `version_policy`: `version_policy.latest.num_versions` must be at least 1",
        ),
        (
            "version_policy { specific { } }",
            "`version_policy.specific.versions` must name at least one version",
        ),
        (
            "version_policy { all { } latest { } }",
            "`version_policy.latest`: one of",
        ),
        (
            "parameters { key: 'execution_mode' value: { string_value: '1' } }",
            "parameter `execution_mode` = `1`",
        ),
        (
            "parameters { key: 'intra_op_thread_count' value: { string_value: 'x' } }",
            "`parameters.value`",
        ),
        (
            "parameters { value: { string_value: 'x' } }",
            "`parameters`: `key` is missing",
        ),
        ("optimization { graph { level: 1 } }", "`optimization.graph.level`"),
        (
            "optimization { execution_accelerators { gpu_execution_accelerator: [ { name: 'tensorrt' } ] } }",
            "`optimization.execution_accelerators`",
        ),
        (
            "model_transaction_policy { decoupled: True }",
            "`model_transaction_policy.decoupled`",
        ),
        (
            "model_warmup { inputs { key: 'x' value: { dims: 1 } } }",
            "`model_warmup.inputs.value`: one of",
        ),
        (
            "model_warmup { inputs { key: 'x' value: { zero_data: true random_data: true } } }",
            "`model_warmup.inputs.value.random_data`",
        ),
        (
            "model_warmup { inputs { key: 'x' value: { input_data_file: '../x' } } }",
            "invalid name of a file",
        ),
        ("nome: 'x'", "line 1, column 7: `nome`: not supported"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}\n  should say {expected}");
    }
}

#[test]
fn a_scalar_is_a_tensor_of_one_element_for_clients() {
    let read = read("input { name: 'x' data_type: TYPE_INT64 dims: [1] reshape: { shape: [ ] } }").unwrap();
    assert_eq!(
        (&read.inputs[0].dims, &read.inputs[0].reshape),
        (&vec![1], &Some(vec![]))
    );
    assert_eq!(ModelConfig::parse(&toml::to_string(&read).unwrap()).unwrap(), read);
}

#[test]
fn everything_that_does_not_map_is_told_at_once_in_the_order_of_the_text() {
    let text = "backend: 'python'\n\
        max_batch_size: 4\n\
        input { name: 'x' data_type: TYPE_FP8 dims: 0\n  allow_ragged_batch: true }\n\
        output { name: 'y' }\n\
        dynamic_batching { preserve_ordering: true\n  priority_queue_policy { } }\n\
        instance_group [ { kind: KIND_MODEL },\n  { host_policy: 'a' } ]\n\
        sequence_batching { }\n\
        model_warmup { batch_size: 9 inputs { key: 'x' value: { dims: -2 zero_data: true } } }\n\
        colour: 'red'\n";
    let error = read(text).unwrap_err().to_string();
    let expected = [
        "12 entries cannot be served as they are",
        "line 1, column 10: `backend`: `python`",
        "line 3, column 30: `input.data_type`: unknown data type: `TYPE_FP8`",
        "line 3, column 45: `input.dims`",
        "line 4, column 23: `input.allow_ragged_batch`",
        "line 5, column 8: `output`: `data_type` of `y` is missing",
        "line 6, column 39: `dynamic_batching.preserve_ordering`",
        "line 7, column 25: `dynamic_batching.priority_queue_policy`",
        "line 8, column 26: `instance_group.kind`: `KIND_MODEL`",
        "line 9, column 18: `instance_group.host_policy`",
        "line 10, column 19: `sequence_batching`",
        "line 11, column 63: `model_warmup.inputs.value.dims`",
        "line 12, column 9: `colour`",
    ];
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    assert_eq!(lines.len(), expected.len(), "{error}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n  should begin with {expected}");
    }
    let ranges = read("max_batch_size: 4 model_warmup { batch_size: 9 } dynamic_batching { preferred_batch_size: 5 }");
    let ranges = ranges.unwrap_err().to_string();
    for expected in [
        "line 1, column 32: `model_warmup`: `warmup.batch_size`",
        "column 67: `dynamic_batching`: `batching.preferred_rows` has 5",
    ] {
        assert!(ranges.contains(expected), "{ranges}\n  should say {expected}");
    }
}

proptest! {
    #[test]
    fn a_file_with_one_change_is_read_or_refused(at in 0..WHOLE.len(), with in "[a-z0-9{}\\[\\]:,\"' #-]{0,3}", cut in 0..4_usize) {
        let end = (at + cut).min(WHOLE.len());
        let changed = format!("{}{with}{}", &WHOLE[..at], &WHOLE[end..]);
        let _ = read(&changed);
    }

    #[test]
    fn numbers_read_back(size in 1..10_000_u32, delay in any::<u64>(), count in 1..100_u32, dims in prop::collection::vec(1..1000_i64, 0..5)) {
        let text = format!(
            "max_batch_size: {size} dynamic_batching {{ max_queue_delay_microseconds: {delay} }} instance_group {{ count: {count} }} \
             input {{ name: 'x' data_type: TYPE_INT64 dims: {dims:?} }}"
        );
        let config = read(&text).unwrap();
        prop_assert_eq!((config.max_batch_size, config.batching.max_delay_us), (size, delay));
        prop_assert_eq!((config.instances.unwrap().count, &config.inputs[0].dims), (count, &dims));
    }
}
