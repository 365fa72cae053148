//! Model as declared by its metadata. In: the server's metadata. Out: plain data.

use tierlab_protocol::tensor::TensorSpec;

/// Model as declared by its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Model name.
    pub model: &'a str,
    /// Inputs that a request must contain.
    pub inputs: &'a [TensorSpec],
    /// Outputs of the model.
    pub outputs: &'a [TensorSpec],
    /// True if the server declares the first dimension of every tensor as the rows.
    pub batched: bool,
}
