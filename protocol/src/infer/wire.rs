//! Requests and replies as their JSON has them: tensors without the binary data that follows.

use crate::tensor::DataType;

/// A request before its binary data.
#[derive(Debug, Default, PartialEq)]
pub(super) struct WireRequest {
    pub(super) id: Option<String>,
    pub(super) binary_output: bool,
    pub(super) timeout_us: Option<u64>,
    pub(super) priority: u64,
    pub(super) inputs: Vec<WireTensor>,
    pub(super) outputs: Vec<WireOutput>,
}

/// A reply before its binary data.
pub(super) struct WireReply {
    pub(super) model_name: String,
    pub(super) model_version: String,
    pub(super) id: Option<String>,
    pub(super) outputs: Vec<WireTensor>,
}

/// A tensor before its binary data.
#[derive(Debug, PartialEq)]
pub(super) struct WireTensor {
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) shape: Vec<i64>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) binary_data_size: Option<u64>,
}

/// An output that a request names.
#[derive(Debug, PartialEq)]
pub(super) struct WireOutput {
    pub(super) name: String,
    /// `parameters.binary_data`, where given.
    pub(super) binary: Option<bool>,
}
