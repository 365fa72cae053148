//! Tensors that a config says the graph must have.

use serde::{Deserialize, Serialize};
use tierlab_protocol::tensor::DataType;

/// A tensor that the graph must have. Where the graph leaves a dimension free, a number here narrows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredTensor {
    /// Its name.
    pub name: String,
    /// Its data type.
    pub datatype: DataType,
    /// Its dimensions; -1 is a free one. Without the batch dimension, unless `max_batch_size` is 0.
    pub dims: Vec<i64>,
}
