//! Tensors that a config says the graph must have.

use super::error::BadModelFile;
use super::reshape::Reshape;
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
    /// Its dimensions as clients see them; -1 is a free one. Without the batch dimension, unless `max_batch_size` is 0.
    pub dims: Vec<i64>,
    /// Its dimensions in the graph, where they are others, as `[]` for a scalar that clients send as `[1]`: as many
    /// elements, and as many free dimensions, which keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshape: Option<Vec<i64>>,
}

impl DeclaredTensor {
    /// Checks what can be checked without the graph.
    pub(super) fn check(&self) -> Result<(), BadModelFile> {
        let Self {
            name, dims, reshape, ..
        } = self;
        for (key, dims) in [("dims", Some(dims)), ("reshape", reshape.as_ref())] {
            if let Some(dim) = dims.into_iter().flatten().find(|&&dim| dim < -1 || dim == 0) {
                return Err(BadModelFile(format!(
                    "`{key}` of `{name}` has {dim}: a dimension is at least 1, or -1 where it is free"
                )));
            }
        }
        match reshape {
            Some(to) => Reshape::new(dims, to)
                .map(drop)
                .map_err(|what| BadModelFile(format!("`reshape` of `{name}`: {what}"))),
            None => Ok(()),
        }
    }
}
