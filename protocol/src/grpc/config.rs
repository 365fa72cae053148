//! The part of Triton's `ModelConfig` message that says something here. Names and numbers are Triton's own.
#![allow(missing_docs, reason = "the fields are Triton's own names")]

use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub platform: String,
    #[prost(string, tag = "17")]
    pub backend: String,
    #[prost(message, optional, tag = "3")]
    pub version_policy: Option<ModelVersionPolicy>,
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: Vec<ModelOutput>,
    #[prost(message, repeated, tag = "7")]
    pub instance_group: Vec<ModelInstanceGroup>,
    #[prost(message, optional, tag = "11")]
    pub dynamic_batching: Option<ModelDynamicBatching>,
    #[prost(string, tag = "8")]
    pub default_model_filename: String,
    #[prost(btree_map = "string, message", tag = "14")]
    pub parameters: BTreeMap<String, ModelParameter>,
    #[prost(message, repeated, tag = "16")]
    pub model_warmup: Vec<ModelWarmup>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelParameter {
    #[prost(string, tag = "1")]
    pub string_value: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelWarmup {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub batch_size: u32,
    #[prost(btree_map = "string, message", tag = "3")]
    pub inputs: BTreeMap<String, ModelWarmupInput>,
    #[prost(uint32, tag = "4")]
    pub count: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelWarmupInput {
    #[prost(enumeration = "ConfigDataType", tag = "1")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "2")]
    pub dims: Vec<i64>,
    #[prost(oneof = "WarmupChoice", tags = "3, 4, 5")]
    pub input_data_type: Option<WarmupChoice>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WarmupChoice {
    #[prost(bool, tag = "3")]
    Zero(bool),
    #[prost(bool, tag = "4")]
    Random(bool),
    #[prost(string, tag = "5")]
    File(String),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelInput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "ConfigDataType", tag = "2")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "4")]
    pub dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelOutput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "ConfigDataType", tag = "2")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelInstanceGroup {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub count: i32,
    #[prost(enumeration = "InstanceKind", tag = "4")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelDynamicBatching {
    #[prost(int32, repeated, tag = "1")]
    pub preferred_batch_size: Vec<i32>,
    #[prost(uint64, tag = "2")]
    pub max_queue_delay_microseconds: u64,
    #[prost(uint64, tag = "4")]
    pub priority_levels: u64,
    #[prost(uint64, tag = "5")]
    pub default_priority_level: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelVersionPolicy {
    #[prost(oneof = "PolicyChoice", tags = "1, 2, 3")]
    pub policy_choice: Option<PolicyChoice>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum PolicyChoice {
    #[prost(message, tag = "1")]
    Latest(LatestVersions),
    #[prost(message, tag = "2")]
    All(AllVersions),
    #[prost(message, tag = "3")]
    Specific(SpecificVersions),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LatestVersions {
    #[prost(uint32, tag = "1")]
    pub num_versions: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct AllVersions {}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct SpecificVersions {
    #[prost(int64, repeated, tag = "1")]
    pub versions: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum InstanceKind {
    Auto = 0,
    Gpu = 1,
    Cpu = 2,
    Model = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ConfigDataType {
    Invalid = 0,
    Bool = 1,
    Uint8 = 2,
    Uint16 = 3,
    Uint32 = 4,
    Uint64 = 5,
    Int8 = 6,
    Int16 = 7,
    Int32 = 8,
    Int64 = 9,
    Fp16 = 10,
    Fp32 = 11,
    Fp64 = 12,
    String = 13,
    Bf16 = 14,
}

impl ConfigDataType {
    /// The type that a configuration document names, such as `TYPE_FP32`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        match name.strip_prefix("TYPE_").unwrap_or(name) {
            "BOOL" => Self::Bool,
            "UINT8" => Self::Uint8,
            "UINT16" => Self::Uint16,
            "UINT32" => Self::Uint32,
            "UINT64" => Self::Uint64,
            "INT8" => Self::Int8,
            "INT16" => Self::Int16,
            "INT32" => Self::Int32,
            "INT64" => Self::Int64,
            "FP16" => Self::Fp16,
            "FP32" => Self::Fp32,
            "FP64" => Self::Fp64,
            "STRING" => Self::String,
            "BF16" => Self::Bf16,
            _ => Self::Invalid,
        }
    }
}
