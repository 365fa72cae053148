//! ONNX files: a builder for graphs, an encoder that streams, and a reader of a graph's inputs and outputs. The messages
//! are those of [`tierlab_formats::onnx`]. Knows nothing of particular models.

pub mod encode;
pub mod graph;
pub mod interface;

pub use encode::write_model;
pub use graph::{Dim, GraphBuilder, IR_VERSION, OPSET};
pub use interface::{BadGraph, Interface};
pub use messages::ModelProto;
pub use tierlab_formats::onnx::messages;
