//! Generates the gRPC messages from `proto/` with protox, so that builds do not need `protoc`.

use std::error::Error;

/// Maps encoded in the order of their keys.
const SORTED_MAPS: [&str; 2] = [".inference.ModelConfig.parameters", ".inference.ModelWarmup.inputs"];
/// Messages that are also JSON documents over HTTP, with the same field names.
const DOCUMENTS: [&str; 19] = [
    "ServerLiveResponse",
    "ReadyResponse",
    "ServerMetadataResponse",
    "ModelStatisticsResponse",
    "ModelStatistics",
    "InferBatchStatistics",
    "InferStatistics",
    "StatisticDuration",
    "ModelIndex",
    "ModelConfig",
    "ModelVersionPolicy",
    "ModelTensorReshape",
    "ModelInput",
    "ModelOutput",
    "ModelInstanceGroup",
    "ModelDynamicBatching",
    "ModelQueuePolicy",
    "ModelParameter",
    "ModelWarmup",
];
/// Serde attributes of fields of these documents.
const FIELDS: [(&str, &str); 8] = [
    ("policy_choice", "flatten"),
    ("input_data_type", "flatten"),
    ("data_type", "serialize_with = \"crate::grpc::messages::type_name\""),
    ("kind", "serialize_with = \"crate::grpc::messages::kind_name\""),
    ("reshape", "skip_serializing_if = \"Option::is_none\""),
    ("label_filename", "skip_serializing_if = \"String::is_empty\""),
    ("dynamic_batching", "skip_serializing_if = \"Option::is_none\""),
    ("default_queue_policy", "skip_serializing_if = \"Option::is_none\""),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let texts = protox::compile(["inference.proto", "health.proto", "status.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    config.bytes(["."]).btree_map(SORTED_MAPS);
    for document in DOCUMENTS {
        config.message_attribute(format!(".inference.{document}"), "#[derive(serde::Serialize)]");
    }
    for (field, write) in FIELDS {
        config.field_attribute(field, format!("#[serde({write})]"));
    }
    for choice in ["policy_choice", "input_data_type"] {
        config.enum_attribute(
            choice,
            "#[derive(serde::Serialize)] #[serde(rename_all = \"snake_case\")]",
        );
    }
    config.compile_fds(texts)?;
    Ok(())
}
