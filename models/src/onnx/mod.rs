//! ONNX files: a builder for graphs, an encoder that streams, and a reader of a graph's inputs and outputs. The
//! messages are those of [`tierlab_formats::onnx`]. Independent of particular models.

pub mod graph;

pub use graph::{Dim, GraphBuilder, IR_VERSION, OPSET};
pub use messages::ModelProto;
pub use tierlab_formats::onnx::messages;

use anyhow::{Context as _, Result, anyhow, ensure};
use messages::{Dimension, DimensionValue, ElementType, GraphProto, ValueInfoProto};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use std::collections::BTreeSet;
use std::io::{self, Write};
use tierlab_formats::onnx::{External, all_tensors, external};
use tierlab_protocol::tensor::{DataType, TensorSpec};

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
    let without_weights = GraphProto {
        initializer: Vec::new(),
        ..graph.clone()
    };
    out.write_all(&without_weights.encode_to_vec())?;
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

/// Inputs and outputs of a graph, in the graph's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Inputs that a client must send.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in replies.
    pub outputs: Vec<TensorSpec>,
}

impl Interface {
    /// Reads the interface of a model. Dimensions without a fixed size become -1.
    ///
    /// # Errors
    /// An input or output that the Open Inference Protocol cannot carry, by name.
    pub fn from_model(model: &ModelProto) -> Result<Self> {
        Self::with_shapes(model, &[])
    }

    /// Same as [`Interface::from_model`], with the inferred shape of outputs without a shape in the file. A runtime
    /// reports an output of unknown rank without dimensions, and its replies have the computed shape.
    ///
    /// # Errors
    /// Same as [`Interface::from_model`].
    pub fn with_shapes(model: &ModelProto, inferred: &[TensorSpec]) -> Result<Self> {
        let graph = model.graph.as_ref().context("it holds no graph")?;
        // Format versions before 4 list the weights among the inputs.
        let sparse = graph.sparse_initializer.iter();
        let sparse = sparse.filter_map(|sparse| sparse.values.as_ref());
        let weights = graph.initializer.iter().chain(sparse);
        let weights: BTreeSet<&str> = weights.map(|tensor| tensor.name.as_str()).collect();
        let is_weight = |input: &&ValueInfoProto| weights.contains(input.name.as_str());
        let inputs = graph.input.iter().filter(|input| !is_weight(input));
        let inputs = inputs.map(|value| spec("input", value, &[]));
        let outputs = graph.output.iter().map(|value| spec("output", value, inferred));
        let interface = Self {
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.collect::<Result<_, _>>()?,
        };
        let has_both = !interface.inputs.is_empty() && !interface.outputs.is_empty();
        ensure!(has_both, "the graph needs an input and an output");
        Ok(interface)
    }
}

fn spec(role: &str, value: &ValueInfoProto, inferred: &[TensorSpec]) -> Result<TensorSpec> {
    let bad = |what: &str| anyhow!("{role} `{}` {what}", value.name);
    let Some(tensor) = value.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref()) else {
        return Err(bad(
            "is not a tensor: sequences, maps and optionals cannot be served; export the model without them (scikit-learn: `to_onnx(model, X, options={'zipmap': False})`)",
        ));
    };
    let code = tensor.elem_type;
    let unnamed = || format!("has ONNX element type {code}, which the Open Inference Protocol has no name for");
    let dtype = dtype(code).ok_or_else(|| bad(&unnamed()))?;
    let size = |dim: &Dimension| match dim.value {
        Some(DimensionValue::DimValue(size)) if size >= 0 => size,
        _ => -1,
    };
    let inferred = inferred.iter().find(|spec| spec.name == value.name);
    let shape = match (&tensor.shape, inferred) {
        (Some(shape), _) => shape.dim.iter().map(size).collect(),
        (None, Some(inferred)) => inferred.shape.iter().map(|&size| size.max(-1)).collect(),
        (None, None) => return Err(bad("has no shape in the file: export it with its number of dimensions")),
    };
    Ok(TensorSpec {
        name: value.name.clone(),
        dtype,
        shape,
    })
}

/// Returns the protocol's name of an ONNX element type.
pub fn dtype(elem_type: i32) -> Option<DataType> {
    Some(match ElementType::try_from(elem_type).ok()? {
        ElementType::Undefined => return None,
        ElementType::Float => DataType::Fp32,
        ElementType::Uint8 => DataType::Uint8,
        ElementType::Int8 => DataType::Int8,
        ElementType::Uint16 => DataType::Uint16,
        ElementType::Int16 => DataType::Int16,
        ElementType::Int32 => DataType::Int32,
        ElementType::Int64 => DataType::Int64,
        ElementType::String => DataType::Bytes,
        ElementType::Bool => DataType::Bool,
        ElementType::Float16 => DataType::Fp16,
        ElementType::Double => DataType::Fp64,
        ElementType::Uint32 => DataType::Uint32,
        ElementType::Uint64 => DataType::Uint64,
        ElementType::Bfloat16 => DataType::Bf16,
    })
}

/// Returns the files of the model's external weights, relative to the model's folder, with their required contents.
///
/// # Errors
/// A location that is absolute or leaves the model's folder.
pub fn external_files(model: &ModelProto) -> Result<External> {
    let is_path = |path: &str| tierlab_storage::ObjectPath::new(path).is_ok();
    external(all_tensors(model), is_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use tierlab_formats::onnx::decode;
    use tierlab_formats::onnx::messages::{
        AttributeProto, DATA_EXTERNAL, FunctionProto, NodeProto, SparseTensorProto, StringStringEntryProto,
        TensorProto, TrainingInfoProto,
    };

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

    fn model() -> ModelProto {
        let mut graph = GraphBuilder::new("test");
        let input = graph.input("input", ElementType::Uint8, &[-1, 3]);
        graph.node("output", "Identity", &[&input], &[]);
        graph.output("output", ElementType::Uint8, &[-1, 3]);
        graph.finish("")
    }

    fn weight(location: &str) -> TensorProto {
        TensorProto {
            name: "w".to_owned(),
            data_location: DATA_EXTERNAL,
            external_data: vec![StringStringEntryProto {
                key: "location".to_owned(),
                value: location.to_owned(),
            }],
            ..TensorProto::default()
        }
    }

    fn external(model: &mut ModelProto, location: &str) {
        model.graph.as_mut().unwrap().initializer.push(weight(location));
    }

    #[test]
    fn names_types_and_free_dimensions_are_read() {
        let interface = Interface::from_model(&model()).unwrap();
        assert_eq!(interface.inputs[0].name, "input");
        assert_eq!(interface.inputs[0].dtype, DataType::Uint8);
        assert_eq!(interface.inputs[0].shape, [-1, 3]);
    }

    #[test]
    fn what_cannot_be_served_is_named() {
        let mut shapeless = model();
        shapeless.graph.as_mut().unwrap().input[0].r#type = None;
        assert!(
            Interface::from_model(&shapeless)
                .unwrap_err()
                .to_string()
                .contains("`input` is not a tensor")
        );
        // The probabilities of scikit-learn's default export have no type here.
        let mut maps = model();
        maps.graph.as_mut().unwrap().output[0].r#type = None;
        let error = Interface::from_model(&maps).unwrap_err().to_string();
        assert!(error.contains("'zipmap': False"), "{error}");
        assert!(decode(Bytes::new()).is_err());
        assert!(decode(Bytes::from_static(b"PK\x03\x04 a zip file")).is_err());
    }

    #[test]
    fn external_data_may_not_leave_the_folder() {
        let mut inside = model();
        external(&mut inside, "weights.bin");
        external(&mut inside, "weights.bin");
        let files = external_files(&inside).unwrap().files;
        assert!(files.keys().eq(["weights.bin"]));
        for bad in ["/etc/passwd", "../weights.bin", ""] {
            let mut outside = model();
            external(&mut outside, bad);
            assert!(external_files(&outside).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_of_sparse_weights_functions_and_training_are_found() {
        let mut model = model();
        let graph = model.graph.as_mut().unwrap();
        graph.sparse_initializer.push(SparseTensorProto {
            values: Some(weight("values.bin")),
            indices: Some(weight("indices.bin")),
            dims: vec![3],
        });
        let attribute = AttributeProto {
            sparse_tensor: Some(SparseTensorProto {
                values: Some(weight("attribute.bin")),
                ..SparseTensorProto::default()
            }),
            ..AttributeProto::default()
        };
        graph.node[0].attribute.push(attribute);
        let body = NodeProto {
            attribute: vec![AttributeProto {
                t: Some(weight("function.bin")),
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        };
        model.functions.push(FunctionProto {
            node: vec![body],
            ..FunctionProto::default()
        });
        model.training_info.push(TrainingInfoProto {
            algorithm: Some(GraphProto {
                initializer: vec![weight("training.bin")],
                ..GraphProto::default()
            }),
            ..TrainingInfoProto::default()
        });
        let found: Vec<String> = external_files(&model).unwrap().files.into_keys().collect();
        let expected = [
            "attribute.bin",
            "function.bin",
            "indices.bin",
            "training.bin",
            "values.bin",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sparse_weight_among_the_inputs_is_no_input() {
        let mut model = model();
        let graph = model.graph.as_mut().unwrap();
        let mut listed = graph.input[0].clone();
        listed.name = "w".to_owned();
        graph.input.push(listed);
        graph.sparse_initializer.push(SparseTensorProto {
            values: Some(weight("values.bin")),
            ..SparseTensorProto::default()
        });
        assert_eq!(Interface::from_model(&model).unwrap().inputs.len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(model) = decode(bytes.into()) {
                let _ = Interface::from_model(&model);
                let _ = external_files(&model);
            }
        }
    }
}
