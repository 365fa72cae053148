//! Infer requests and replies of the Open Inference Protocol v2, as JSON and with the binary tensor extension.
//!
//! In: a body and, for the extension, the length of its JSON part. Out: tensors as raw little-endian bytes, and back.
//! Knows nothing of models: whether a name, type or shape is what a model wants is decided by its user.
//!
//! Sources: KServe's Open Inference Protocol (`required_api.md`) and Triton's `extension_binary_data.md`. A request may
//! mix JSON and binary inputs; binary ones follow the JSON part in the order of the `inputs` array.

mod body;
mod data;
mod element;
mod json;
mod reply;
mod request;
mod tensor;
mod text;
mod writer;

pub use data::{Data, DataReader};
pub use reply::InferReply;
pub use request::{InferRequest, RequestedOutput};
pub(crate) use tensor::INPUT;
pub use tensor::{Tensor, bytes_elements};
pub use writer::{Encoded, Piece};

/// Inputs, and requested outputs, of one request at most.
pub const MAX_TENSORS: usize = 256;
/// Dimensions of one tensor at most.
pub const MAX_RANK: usize = 16;
/// Bytes of a tensor's name, and of a request's id, at most.
pub const MAX_NAME_BYTES: usize = 1024;
/// Elements at most that the other dimensions of an input make where one of them is 0. It costs its sender no bytes, and a
/// graph that reduces the empty dimension fills all others.
pub const MAX_EMPTY_ELEMENTS: usize = 1 << 24;

/// Why a body is no valid request or reply. The message names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

/// The HTTP header that gives the length of the JSON part when binary tensors follow it.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// Account that memory is reserved from before it is allocated: whatever grows with what a client sent or asked for. Its owner
/// counts, says why it is spent, and takes everything back at the end.
pub trait MemoryBudget {
    /// Reserves `bytes` more; false where the budget does not have them. What was refused is not counted.
    fn take(&self, bytes: usize) -> bool;
}

/// A budget without a limit: for input that is trusted or was limited before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl MemoryBudget for Unlimited {
    fn take(&self, _: usize) -> bool {
        true
    }
}

/// Error of a reader without memory. The owner of the budget has the details.
pub(crate) const OVER_BUDGET: &str = "there is no room for what it holds";

#[cfg(test)]
mod tests;
