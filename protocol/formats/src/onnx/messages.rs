//! Messages of an ONNX file that are read and written here: the graph, its inputs and outputs, and whatever can hold a
//! tensor. Names and numbers are those of <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>.
//!
//! A field that is not declared is skipped in reading: so are the typed lists of a tensor's elements, of which `raw_data` is
//! the one form that is written.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// Whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Version of the model.
    #[prost(int64, tag = "5")]
    pub model_version: i64,
    #[prost(string, tag = "6")]
    pub doc_string: String,
    /// Graph; absent in a file that is no model.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets that the graph uses.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Graphs for training; inference runs none of them.
    #[prost(message, repeated, tag = "20")]
    pub training_info: Vec<TrainingInfoProto>,
    /// Functions that nodes of the graph call like operators.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// Operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Domain; empty for ONNX's own operators.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version of the set.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// Named text.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Graphs of one training step.
#[derive(Clone, PartialEq, Message)]
pub struct TrainingInfoProto {
    /// Sets the first values.
    #[prost(message, optional, tag = "1")]
    pub initialization: Option<GraphProto>,
    /// Runs once per step.
    #[prost(message, optional, tag = "2")]
    pub algorithm: Option<GraphProto>,
}

/// Subgraph with a name, called by nodes whose operator has that name.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of the values that it takes.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of the values that it gives.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Operators, in topological order.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Operator sets that it uses.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes that have default values.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
}

/// Operators in topological order, with constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; in files before format version 4 the constants as well.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Constants that are mostly zeros.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// Call of an operator or function.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the values that it takes.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the values that it gives.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    /// Operator or function.
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Domain of the operator or function.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// Named attribute. The type tells which of the fields holds the value.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// Subgraph: a branch of If, the body of Loop or Scan.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Type: an [`AttributeType`], or one that is not declared here.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
    /// Sparse tensor.
    #[prost(message, optional, tag = "22")]
    pub sparse_tensor: Option<SparseTensorProto>,
    /// Sparse tensors.
    #[prost(message, repeated, tag = "23")]
    pub sparse_tensors: Vec<SparseTensorProto>,
}

/// Type of an attribute that is written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// Not stated.
    Undefined = 0,
    /// The field `i`.
    Int = 2,
    /// The field `g`.
    Graph = 5,
    /// The field `ints`.
    Ints = 7,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Element type: an [`ElementType`], or one without a name here.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements: little-endian, the last dimension first.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Place of the elements in another file: `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// [`DATA_EXTERNAL`] if the elements lie in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// `TensorProto.data_location` of a tensor whose elements lie in another file.
pub const DATA_EXTERNAL: i32 = 1;

/// Element type that the protocol can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ElementType {
    /// Not stated.
    Undefined = 0,
    /// 32 bits.
    Float = 1,
    /// 8 bits, unsigned.
    Uint8 = 2,
    /// 8 bits, signed.
    Int8 = 3,
    /// 16 bits, unsigned.
    Uint16 = 4,
    /// 16 bits, signed.
    Int16 = 5,
    /// 32 bits, signed.
    Int32 = 6,
    /// 64 bits, signed.
    Int64 = 7,
    /// Bytes of any length.
    String = 8,
    /// One byte, 0 or 1.
    Bool = 9,
    /// 16 bits, IEEE 754.
    Float16 = 10,
    /// 64 bits.
    Double = 11,
    /// 32 bits, unsigned.
    Uint32 = 12,
    /// 64 bits, unsigned.
    Uint64 = 13,
    /// 16 bits, the upper half of a float.
    Bfloat16 = 16,
}

/// Constant given by its elements that are not zero.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Indices of the elements.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Shape of the whole.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// Input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// Type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Dense tensor; absent for sequences, maps and optionals.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

/// Type of a dense tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// Element type, as in [`TensorProto`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Shape; absent if the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// Size; unknown without a value.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// Size of a dimension.
#[derive(Clone, PartialEq, Oneof)]
pub enum DimensionValue {
    /// Fixed size.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// Any size; dimensions of one name have one size.
    #[prost(string, tag = "2")]
    DimParam(String),
}
