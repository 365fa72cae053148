//! Infer requests and replies of the Open Inference Protocol v2, as JSON and with the binary tensor extension.
//!
//! In: a body and, for the extension, the length of its JSON part. Out: tensors as raw little-endian bytes, and back.
//! Independent of models: the caller checks names, types and shapes against the model.
//!
//! Sources: KServe's Open Inference Protocol (`required_api.md`) and Triton's `extension_binary_data.md`. A request may
//! mix JSON and binary inputs; binary ones follow the JSON part in the order of the `inputs` array.

mod data;
mod element;
mod json;
mod request;
mod tensor;
mod text;
mod writer;

pub use data::{Data, DataReader};
pub use request::{InferReply, InferRequest, RequestedOutput};
pub(crate) use tensor::INPUT;
pub use tensor::{Tensor, bytes_elements, push_bytes};
pub use writer::{Encoded, Piece};

/// Maximum inputs, and maximum requested outputs, of a request.
pub const MAX_TENSORS: usize = 256;
/// Maximum dimensions of a tensor.
pub const MAX_RANK: usize = 16;
/// Maximum bytes of a tensor's name and of a request's id.
pub const MAX_NAME_BYTES: usize = 1024;
/// Maximum product of an input's other dimensions if one of them is 0. Such an input costs its sender no bytes, and a
/// graph that reduces the empty dimension fills all others.
pub const MAX_EMPTY_ELEMENTS: usize = 1 << 24;

/// Invalid request or reply. The message names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

/// HTTP header with the length of the JSON part if binary tensors follow it.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// Account from which memory is reserved before it is allocated, for everything that grows with a client's data. The
/// owner counts, reports why the budget is exhausted, and releases everything at the end.
pub trait MemoryBudget {
    /// Reserves `bytes` more; false if the budget is exhausted. Refused amounts are not counted.
    fn take(&self, bytes: usize) -> bool;
}

/// Unlimited budget, for input that is trusted or already limited.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl MemoryBudget for Unlimited {
    fn take(&self, _: usize) -> bool {
        true
    }
}

/// Error of a reader whose budget is exhausted. The owner of the budget has the details.
pub(crate) const OVER_BUDGET: &str = "not enough memory for its content";

#[cfg(test)]
mod tests;
