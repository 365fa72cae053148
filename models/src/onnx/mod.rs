//! ONNX files: a builder for graphs, an encoder that streams, and a reader of a graph's inputs and outputs. The
//! messages are those of [`tierlab_formats::onnx`]. Independent of particular models.

pub mod graph;
pub mod interface;

pub use graph::{Dim, GraphBuilder, IR_VERSION, OPSET};
pub use interface::Interface;
pub use messages::ModelProto;
pub use tierlab_formats::onnx::messages;

use messages::GraphProto;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::io::{self, Write};

const MODEL_GRAPH: u32 = 7;
const GRAPH_INITIALIZER: u32 = 5;
/// Maximum size of a protobuf message, 2 GiB; larger weights need ONNX's external data.
const MAX_MODEL_BYTES: usize = i32::MAX as usize;

/// Writes the bytes of `model`. The same model gives the same bytes.
///
/// # Errors
/// Errors of `out`, or a model above 2 GiB.
pub fn write_model(model: &ModelProto, out: &mut impl Write) -> io::Result<()> {
    if model.encoded_len() > MAX_MODEL_BYTES {
        return Err(io::Error::other("the model is above protobuf's 2 GiB"));
    }
    // Cloning a graph shares the weights: `raw_data` is reference-counted.
    let mut head = model.clone();
    let graph = head.graph.take();
    out.write_all(&head.encode_to_vec())?;
    let Some(graph) = graph else { return Ok(()) };
    write_key(out, MODEL_GRAPH, graph.encoded_len())?;
    out.write_all(
        &GraphProto {
            initializer: Vec::new(),
            ..graph.clone()
        }
        .encode_to_vec(),
    )?;
    for tensor in &graph.initializer {
        write_key(out, GRAPH_INITIALIZER, tensor.encoded_len())?;
        out.write_all(&tensor.encode_to_vec())?;
    }
    Ok(())
}

fn write_key(out: &mut impl Write, field: u32, len: usize) -> io::Result<()> {
    let mut key = Vec::with_capacity(12);
    encode_key(field, WireType::LengthDelimited, &mut key);
    encode_varint(len as u64, &mut key);
    out.write_all(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_formats::onnx::messages::{ElementType, ModelProto};

    #[test]
    fn pieces_read_back_as_the_whole() {
        let mut graph = GraphBuilder::new("test");
        let input = graph.input("input", ElementType::Float, &[-1, 2]);
        let weight = graph.constant("weight", ElementType::Float, &[2, 1], vec![0_u8; 8].into());
        graph.node("output", "MatMul", &[&input, &weight], &[]);
        graph.output("output", ElementType::Float, &[-1, 1]);
        let model = graph.finish("a test");
        let mut bytes = Vec::new();
        write_model(&model, &mut bytes).unwrap();
        assert_eq!(bytes.len(), model.encoded_len());
        assert_eq!(ModelProto::decode(bytes.as_slice()).unwrap(), model);
    }
}
