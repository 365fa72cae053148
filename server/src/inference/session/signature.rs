//! What a model's graph takes and gives.

use tierlab_protocol::tensor::TensorSpec;

/// What a model's graph takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) inputs: Vec<TensorSpec>,
    pub(crate) outputs: Vec<TensorSpec>,
    /// Whether the first dimension of every input and output is a batch of rows, as the model's config says: then requests
    /// can share a run.
    pub(crate) batched: bool,
}
