//! ONNX files: the protobuf messages, a builder for graphs, an encoder that streams, and a reader of a graph's
//! inputs and outputs. Knows nothing of particular models.

pub mod encode;
pub mod graph;
pub mod interface;
pub mod messages;

pub use encode::write_model;
pub use graph::{Dim, GraphBuilder};
pub use interface::{BadGraph, Interface};
pub use messages::ModelProto;

/// The format's version written: 8, taken by every ONNX Runtime since 1.10.
pub const IR_VERSION: i64 = 8;
/// The operator set written: 17 (ONNX 1.12).
pub const OPSET: i64 = 17;
