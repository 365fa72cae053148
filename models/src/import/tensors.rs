//! Conversion of raw little-endian elements to values of ONNX Runtime, and of type names.

use crate::onnx::interface::dtype;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{Tensor, TensorElementType};
use tierlab_formats::model::WarmupTensor;
use tierlab_protocol::infer::{BadRequest, bytes_elements};
use tierlab_protocol::tensor::DataType;

/// Returns the protocol's name of an element type of ONNX Runtime, which are numbered as in ONNX files; `None` if there
/// is none.
pub(super) fn data_type(element: TensorElementType) -> Option<DataType> {
    dtype(ort::sys::ONNXTensorElementDataType::from(element) as i32)
}

/// Returns a tensor as an input of a run.
///
/// # Errors
/// Truncated elements, or text that is not UTF-8.
pub fn value(dtype: DataType, tensor: &WarmupTensor) -> Result<SessionInputValue<'static>, String> {
    let WarmupTensor { shape, data } = tensor;
    let shape = shape.clone();
    let told = |e: ort::Error| e.to_string();
    macro_rules! numbers {
        ($element:ty) => {{
            let (elements, rest) = data.as_chunks();
            if !rest.is_empty() {
                return Err(format!("{} bytes are no whole elements of {dtype}", data.len()));
            }
            let elements: Vec<$element> = elements.iter().map(|bytes| <$element>::from_le_bytes(*bytes)).collect();
            Ok(Tensor::from_array((shape, elements)).map_err(told)?.into())
        }};
    }
    match dtype {
        DataType::Bool => {
            let elements: Vec<bool> = data.iter().map(|&byte| byte != 0).collect();
            Ok(Tensor::from_array((shape, elements)).map_err(told)?.into())
        }
        DataType::Uint8 => numbers!(u8),
        DataType::Uint16 => numbers!(u16),
        DataType::Uint32 => numbers!(u32),
        DataType::Uint64 => numbers!(u64),
        DataType::Int8 => numbers!(i8),
        DataType::Int16 => numbers!(i16),
        DataType::Int32 => numbers!(i32),
        DataType::Int64 => numbers!(i64),
        DataType::Fp16 => numbers!(f16),
        DataType::Bf16 => numbers!(bf16),
        DataType::Fp32 => numbers!(f32),
        DataType::Fp64 => numbers!(f64),
        DataType::Bytes => {
            let text = |element: Result<&[u8], BadRequest>| -> Result<String, String> {
                let element = element.map_err(|e| e.to_string())?;
                let text = std::str::from_utf8(element).map_err(|e| format!("a BYTES element is not UTF-8: {e}"))?;
                Ok(text.to_owned())
            };
            let texts = bytes_elements(data).map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(Tensor::from_string_array((shape, texts.as_slice()))
                .map_err(told)?
                .into())
        }
    }
}
