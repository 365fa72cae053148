//! The messages of an ONNX file, generated from `protocol/proto/onnx.proto`. A field that is not declared there is skipped
//! in reading: so are the typed lists of a tensor's elements, of which `raw_data` is the one form that is written.

pub use attribute_proto::AttributeType;
pub use tensor_proto::DataType as ElementType;

/// `TensorProto.data_location` of a tensor whose elements lie in another file.
pub const DATA_EXTERNAL: i32 = tensor_proto::DataLocation::External as i32;

include!("generated.rs");
