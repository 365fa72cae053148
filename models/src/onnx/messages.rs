//! The ONNX messages that are written and read here, with the field numbers of the public definition,
//! <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3>. Fields that are not declared are passed over in reading.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// What wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// Reverse-DNS namespace.
    #[prost(string, tag = "4")]
    pub domain: String,
    /// Version of the model.
    #[prost(int64, tag = "5")]
    pub model_version: i64,
    /// For people.
    #[prost(string, tag = "6")]
    pub doc_string: String,
    /// The graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets used.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Named texts.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// An operator set; the empty domain is ONNX's own.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Its domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A named text.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The text.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Nodes in topological order, with the constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Operators.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// For people.
    #[prost(string, tag = "10")]
    pub doc_string: String,
    /// Inputs; before format version 4 the initializers as well.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

/// One operator.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the values it takes.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the values it makes.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Its attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
}

/// A named attribute: the field that `r#type` tells holds the value.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A nested graph (the body of If, Loop, Scan).
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Nested graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Which field holds the value.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
}

/// Which field of an attribute holds its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// None.
    Undefined = 0,
    /// `f`.
    Float = 1,
    /// `i`.
    Int = 2,
    /// `s`.
    String = 3,
    /// `t`.
    Tensor = 4,
    /// `g`.
    Graph = 5,
    /// `floats`.
    Floats = 6,
    /// `ints`.
    Ints = 7,
    /// `strings`.
    Strings = 8,
    /// `tensors`.
    Tensors = 9,
    /// `graphs`.
    Graphs = 10,
}

/// A constant. Written here with `raw_data` only; a reader may meet the typed fields too, which are passed over.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Its shape.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Its element type, an [`ElementType`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements, little-endian, row-major.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Where the elements lie instead: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 when they lie in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// `TensorProto.data_location` of a tensor whose elements lie in another file.
pub const DATA_EXTERNAL: i32 = 1;

/// `TensorProto.DataType`, as far as the Open Inference Protocol v2 has names for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
#[allow(missing_docs, reason = "the variants are the format's own names")]
pub enum ElementType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
}

/// An input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type. Sequences, maps and optionals read as no value at all.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// What kind of type.
    #[prost(oneof = "type_proto::Value", tags = "1")]
    pub value: Option<type_proto::Value>,
}

/// The kinds of types.
pub mod type_proto {
    use super::{Message, Oneof, TensorShapeProto};

    /// A kind of type.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// A dense tensor.
        #[prost(message, tag = "1")]
        TensorType(Tensor),
    }

    /// A dense tensor.
    #[derive(Clone, PartialEq, Message)]
    pub struct Tensor {
        /// Its element type, an [`ElementType`](super::ElementType).
        #[prost(int32, tag = "1")]
        pub elem_type: i32,
        /// Its shape; absent when even the rank is unknown.
        #[prost(message, optional, tag = "2")]
        pub shape: Option<TensorShapeProto>,
    }
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<tensor_shape_proto::Dimension>,
}

/// Dimensions of a shape.
pub mod tensor_shape_proto {
    use super::{Message, Oneof};

    /// One dimension; without a value it is unknown.
    #[derive(Clone, PartialEq, Message)]
    pub struct Dimension {
        /// Its size.
        #[prost(oneof = "dimension::Value", tags = "1, 2")]
        pub value: Option<dimension::Value>,
    }

    /// Sizes of a dimension.
    pub mod dimension {
        use super::Oneof;

        /// The size.
        #[derive(Clone, PartialEq, Oneof)]
        pub enum Value {
            /// Fixed.
            #[prost(int64, tag = "1")]
            DimValue(i64),
            /// Free, with a name.
            #[prost(string, tag = "2")]
            DimParam(String),
        }
    }
}
