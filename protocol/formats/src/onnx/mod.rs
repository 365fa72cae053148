//! ONNX files: their protobuf messages, and every tensor that one holds or refers to.
//!
//! In: a model's bytes or messages. Out: its tensors, wherever they stand, and the files that it keeps weights in. Whether a
//! tensor's data may lie where it says is decided by its user.

mod decode;
mod external;
pub mod messages;
mod tensors;

pub use decode::decode;
pub use external::{External, ExternalFile, Placeholder, external};
pub use tensors::{all_tensors, inference_tensors};
