//! ONNX files: their protobuf messages, and every tensor that one holds or refers to.
//!
//! In: a model's bytes or messages. Out: its tensors, in the graph, in subgraphs and in functions, and its files of
//! weights. The caller decides if a location may be read.

mod external;

/// The messages, generated from `protocol/formats/proto/onnx.proto`.
#[allow(missing_docs, reason = "the names are those of ONNX, described in its own file")]
pub mod messages {
    pub use attribute_proto::AttributeType;
    pub use dimension::Value as DimensionValue;
    pub use tensor_proto::DataType as ElementType;

    /// `TensorProto.data_location` of a tensor with its elements in another file.
    pub const DATA_EXTERNAL: i32 = 1;

    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}

pub use external::{External, ExternalFile, Placeholder, external};

use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use messages::{AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto};
use prost::Message as _;

/// Decodes a model. Weights stay slices of `onnx`.
///
/// # Errors
/// Bytes that are not an ONNX model: their kind, if known, and advice.
pub fn decode(onnx: Bytes) -> Result<ModelProto> {
    if let Some(placeholder) = Placeholder::of(&onnx) {
        bail!("it is {placeholder}");
    }
    let model = ModelProto::decode(onnx).map_err(|error| {
        let error = error.to_string();
        let what = match error.contains("UTF-8") {
            true => "a name or text in it is not UTF-8, as ONNX requires: rename it in the model's source, and export it again",
            false => "not an ONNX model, or damaged or truncated: copy or download it again",
        };
        anyhow!("{what} ({error})")
    })?;
    ensure!(model.graph.is_some(), "not an ONNX model: missing graph");
    Ok(model)
}

/// Returns the tensors that inference can use: those of the graph and of the functions that it calls.
pub fn inference_tensors(model: &ModelProto) -> Vec<&TensorProto> {
    let mut found = Vec::new();
    model.graph.iter().for_each(|graph| in_graph(graph, &mut found));
    for function in &model.functions {
        in_nodes(&function.node, &mut found);
        in_attributes(&function.attribute_proto, &mut found);
    }
    found
}

/// Returns every tensor: those of [`inference_tensors`], and those of the graphs for training.
pub fn all_tensors(model: &ModelProto) -> Vec<&TensorProto> {
    let mut found = inference_tensors(model);
    for training in &model.training_info {
        let graphs = training.initialization.iter().chain(&training.algorithm);
        graphs.for_each(|graph| in_graph(graph, &mut found));
    }
    found
}

// prost limits the nesting of messages, so recursion is bounded.
fn in_graph<'a>(graph: &'a GraphProto, found: &mut Vec<&'a TensorProto>) {
    found.extend(&graph.initializer);
    in_sparse(&graph.sparse_initializer, found);
    in_nodes(&graph.node, found);
}

fn in_nodes<'a>(nodes: &'a [NodeProto], found: &mut Vec<&'a TensorProto>) {
    nodes.iter().for_each(|node| in_attributes(&node.attribute, found));
}

fn in_attributes<'a>(attributes: &'a [AttributeProto], found: &mut Vec<&'a TensorProto>) {
    for attribute in attributes {
        found.extend(attribute.t.iter().chain(&attribute.tensors));
        in_sparse(attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors), found);
        let graphs = attribute.g.iter().chain(&attribute.graphs);
        graphs.for_each(|graph| in_graph(graph, found));
    }
}

fn in_sparse<'a>(sparse: impl IntoIterator<Item = &'a SparseTensorProto>, found: &mut Vec<&'a TensorProto>) {
    for tensor in sparse {
        found.extend(tensor.values.iter().chain(&tensor.indices));
    }
}

#[cfg(test)]
mod tests;
