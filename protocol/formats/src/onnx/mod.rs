//! ONNX files: their protobuf messages, and every tensor that one holds or refers to.
//!
//! In: a model's messages. Out: its tensors, wherever they stand. Whether a tensor's data may lie where it says is decided
//! by its user.

pub mod messages;
mod tensors;

pub use tensors::{all_tensors, inference_tensors};
