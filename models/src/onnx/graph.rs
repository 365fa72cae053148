//! Small builder for graphs: every node's value has the node's name, nodes come in topological order.

use bytes::Bytes;
use tierlab_formats::onnx::messages::{
    AttributeProto, AttributeType, Dimension, DimensionValue, ElementType, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TensorType, TypeProto, ValueInfoProto,
};

/// Version of the format: 8, supported by every ONNX Runtime since 1.10.
pub const IR_VERSION: i64 = 8;
/// Operator set: 17 (ONNX 1.12).
pub const OPSET: i64 = 17;
/// Name of the free first dimension of every input and output.
pub const BATCH: &str = "batch";

/// Dimension of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim<'a> {
    /// Fixed size.
    Fixed(i64),
    /// Free size, equal wherever the name occurs; an empty string has no name.
    Free(&'a str),
}

/// Graph under construction.
#[derive(Debug)]
pub struct GraphBuilder(GraphProto);

impl GraphBuilder {
    /// Creates an empty graph.
    pub fn new(name: &str) -> Self {
        Self(GraphProto {
            name: name.to_owned(),
            ..GraphProto::default()
        })
    }

    /// Declares an input and returns its name. A dimension of -1 is the free `batch`.
    pub fn input(&mut self, name: &str, element: ElementType, shape: &[i64]) -> String {
        self.input_of(name, element, &dims(shape))
    }

    /// Declares an input whose free dimensions have their own names, and returns its name.
    pub fn input_of(&mut self, name: &str, element: ElementType, shape: &[Dim<'_>]) -> String {
        self.0.input.push(value_info(name, element, shape));
        name.to_owned()
    }

    /// Declares the value `name` as an output. A dimension of -1 is the free `batch`.
    pub fn output(&mut self, name: &str, element: ElementType, shape: &[i64]) {
        self.output_of(name, element, &dims(shape));
    }

    /// Declares the value `name` as an output whose free dimensions have their own names.
    pub fn output_of(&mut self, name: &str, element: ElementType, shape: &[Dim<'_>]) {
        self.0.output.push(value_info(name, element, shape));
    }

    /// Adds a constant of little-endian elements and returns its name.
    pub fn constant(&mut self, name: &str, element: ElementType, dims: &[i64], raw_data: Bytes) -> String {
        self.0.initializer.push(TensorProto {
            dims: dims.to_vec(),
            data_type: element.into(),
            name: name.to_owned(),
            raw_data,
            ..TensorProto::default()
        });
        name.to_owned()
    }

    /// Adds a constant of floats.
    pub fn floats(&mut self, name: &str, dims: &[i64], values: &[f32]) -> String {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, ElementType::Float, dims, raw)
    }

    /// Adds a constant of integers.
    pub fn ints(&mut self, name: &str, dims: &[i64], values: &[i64]) -> String {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, ElementType::Int64, dims, raw)
    }

    /// Adds an operator with one output, which gets the node's name.
    pub fn node(&mut self, name: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> String {
        self.push(name, op, inputs, vec![name.to_owned()], attributes);
        name.to_owned()
    }

    /// Adds an operator with `count` outputs, named `name:0`, `name:1`, ….
    pub fn node_with_outputs(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[&str],
        attributes: &[AttributeProto],
        count: usize,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..count).map(|i| format!("{name}:{i}")).collect();
        self.push(name, op, inputs, outputs.clone(), attributes);
        outputs
    }

    fn push(&mut self, name: &str, op: &str, inputs: &[&str], output: Vec<String>, attributes: &[AttributeProto]) {
        self.0.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output,
            name: name.to_owned(),
            op_type: op.to_owned(),
            attribute: attributes.to_vec(),
            ..NodeProto::default()
        });
    }

    /// Returns the whole file; `doc` is its description.
    #[must_use]
    pub fn finish(self, doc: &str) -> ModelProto {
        ModelProto {
            ir_version: IR_VERSION,
            producer_name: env!("CARGO_PKG_NAME").to_owned(),
            // No producer version: a release without changes to the graphs keeps their bytes.
            model_version: 1,
            doc_string: doc.to_owned(),
            graph: Some(self.0),
            opset_import: vec![OperatorSetIdProto {
                domain: String::new(),
                version: OPSET,
            }],
            ..ModelProto::default()
        }
    }
}

/// Creates an integer attribute.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        i: Some(value),
        r#type: AttributeType::Int.into(),
        ..AttributeProto::default()
    }
}

/// Creates an attribute of integers.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ints: values.to_vec(),
        r#type: AttributeType::Ints.into(),
        ..AttributeProto::default()
    }
}

fn dims(shape: &[i64]) -> Vec<Dim<'static>> {
    let dim = |&size: &i64| if size < 0 { Dim::Free(BATCH) } else { Dim::Fixed(size) };
    shape.iter().map(dim).collect()
}

fn value_info(name: &str, element: ElementType, shape: &[Dim<'_>]) -> ValueInfoProto {
    let dim = |dim: &Dim<'_>| Dimension {
        value: match *dim {
            Dim::Fixed(size) => Some(DimensionValue::DimValue(size)),
            Dim::Free("") => None,
            Dim::Free(name) => Some(DimensionValue::DimParam(name.to_owned())),
        },
    };
    let tensor = TensorType {
        elem_type: element.into(),
        shape: Some(TensorShapeProto {
            dim: shape.iter().map(dim).collect(),
        }),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor),
        }),
    }
}
