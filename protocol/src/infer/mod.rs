//! Infer requests and replies of the Open Inference Protocol v2, as JSON and with the binary tensor extension.
//!
//! In: a body and, for the extension, the length of its JSON part. Out: tensors as raw little-endian bytes, and back.
//! Knows nothing of models: whether a name, type or shape is what a model wants is decided by its user.
//!
//! Sources: KServe's Open Inference Protocol (`required_api.md`) and Triton's `extension_binary_data.md`. A request may
//! mix JSON and binary inputs; binary ones follow the JSON part in the order of the `inputs` array.

mod body;
mod budget;
mod data;
mod element;
mod error;
mod json;
mod limits;
mod nonfinite;
mod quick;
mod reply;
mod request;
mod tensor;
mod wire;
mod writer;

pub(crate) use budget::OVER_BUDGET;
pub use budget::{MemoryBudget, Unlimited};
pub use data::Data;
pub use error::BadRequest;
pub use limits::{MAX_EMPTY_ELEMENTS, MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS};
pub use reply::InferReply;
pub use request::{InferRequest, RequestedOutput};
pub(crate) use tensor::INPUT;
pub use tensor::{Tensor, bytes_elements};
pub use writer::{Encoded, Piece};

/// The HTTP header that gives the length of the JSON part when binary tensors follow it.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

#[cfg(test)]
mod tests;
