//! The messages of `inference.GRPCInferenceService`. Names and numbers are the protocol's own.
#![allow(missing_docs, reason = "the fields are the protocol's own names")]

use super::config::ModelConfig;
use bytes::Bytes;
use prost::Message;
use std::collections::HashMap;

/// A message without fields: most requests for the whole server, and replies that say "done".
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub live: bool,
}

/// Whether the server, or a model, is ready.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

/// Names a model: the request of `ModelReady`, `ModelMetadata`, `ModelConfig` and `ModelStatistics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Empty for the version that the server chooses.
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub platform: String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

/// The value of a request's, input's or output's parameter.
#[derive(Clone, PartialEq, Message)]
pub struct InferParameter {
    #[prost(oneof = "ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub parameter_choice: Option<ParameterChoice>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ParameterChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

/// Parameters by name.
pub type Parameters = HashMap<String, InferParameter>;

/// A tensor's elements, typed; one of the lists is filled.
#[derive(Clone, PartialEq, Message)]
pub struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: Parameters,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutputTensor>,
    /// Little-endian data of every input, in their order, in place of their `contents`.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

/// An input or output; the two have the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct InferTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: Parameters,
    #[prost(message, optional, tag = "5")]
    pub contents: Option<InferTensorContents>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InferRequestedOutputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(map = "string, message", tag = "2")]
    pub parameters: Parameters,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(map = "string, message", tag = "4")]
    pub parameters: Parameters,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferTensor>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelStreamInferResponse {
    /// Empty where the request was answered.
    #[prost(string, tag = "1")]
    pub error_message: String,
    #[prost(message, optional, tag = "2")]
    pub infer_response: Option<ModelInferResponse>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: Vec<ModelStatistics>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: Vec<InferBatchStatistics>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: Option<StatisticDuration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: Option<StatisticDuration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    /// Whether only models that are ready are wanted.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: Vec<ModelIndex>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelIndex {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, tag = "3")]
    pub state: String,
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// The request of `RepositoryModelLoad` and `RepositoryModelUnload`.
#[derive(Clone, PartialEq, Message)]
pub struct RepositoryModelRequest {
    #[prost(string, tag = "1")]
    pub repository_name: String,
    #[prost(string, tag = "2")]
    pub model_name: String,
    #[prost(map = "string, message", tag = "3")]
    pub parameters: HashMap<String, ModelRepositoryParameter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelRepositoryParameter {
    #[prost(oneof = "RepositoryParameterChoice", tags = "1, 2, 3, 4")]
    pub parameter_choice: Option<RepositoryParameterChoice>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum RepositoryParameterChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bytes = "bytes", tag = "4")]
    Bytes(Bytes),
}

/// The request of `TraceSetting`; its reply has the first field alone.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TraceSettings {
    #[prost(map = "string, message", tag = "1")]
    pub settings: HashMap<String, TraceValue>,
    #[prost(string, tag = "2")]
    pub model_name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TraceValue {
    #[prost(string, repeated, tag = "1")]
    pub value: Vec<String>,
}

/// The request and the reply of `LogSettings`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LogSettings {
    #[prost(map = "string, message", tag = "1")]
    pub settings: HashMap<String, LogValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct LogValue {
    #[prost(oneof = "LogChoice", tags = "1, 2, 3")]
    pub parameter_choice: Option<LogChoice>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum LogChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(uint32, tag = "2")]
    Uint32(u32),
    #[prost(string, tag = "3")]
    String(String),
}
