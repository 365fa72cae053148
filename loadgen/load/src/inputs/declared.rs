//! A model as its metadata declares it. In: what a server said. Out: plain data.

use tierlab_protocol::tensor::TensorSpec;

/// A model as its metadata declares it.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Its name.
    pub model: &'a str,
    /// The inputs that a request has to bring.
    pub inputs: &'a [TensorSpec],
    /// Its outputs.
    pub outputs: &'a [TensorSpec],
    /// True if the server declares the first dimension of every tensor as the rows.
    pub batched: bool,
}
