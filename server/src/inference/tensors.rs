//! Raw little-endian bytes to ONNX Runtime's values and back, one copy each way.
//!
//! In: tensor data as the protocol carries it. Out: [`Buffer`]s that a session reuses from run to run, and outputs as
//! bytes. The element types of the protocol and of ONNX Runtime are matched here; the trial run of an import matches them for
//! itself (`models/src/import/tensors.rs`), since no crate below both knows the runtime.

use bytes::Bytes;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, TensorRef};
use std::fmt::Debug;
use tierlab_protocol::infer::{Data, bytes_elements};
use tierlab_protocol::tensor::{DataType, element_count};

/// Returns the protocol's name of an element type of ONNX Runtime; `None` if there is none.
pub(crate) fn data_type(element: TensorElementType) -> Option<DataType> {
    Some(match element {
        TensorElementType::Bool => DataType::Bool,
        TensorElementType::Uint8 => DataType::Uint8,
        TensorElementType::Uint16 => DataType::Uint16,
        TensorElementType::Uint32 => DataType::Uint32,
        TensorElementType::Uint64 => DataType::Uint64,
        TensorElementType::Int8 => DataType::Int8,
        TensorElementType::Int16 => DataType::Int16,
        TensorElementType::Int32 => DataType::Int32,
        TensorElementType::Int64 => DataType::Int64,
        TensorElementType::Float16 => DataType::Fp16,
        TensorElementType::Bfloat16 => DataType::Bf16,
        TensorElementType::Float32 => DataType::Fp32,
        TensorElementType::Float64 => DataType::Fp64,
        TensorElementType::String => DataType::Bytes,
        _ => return None,
    })
}

/// ONNX Runtime's name of an element type with a fixed size; `None` for text.
pub(crate) fn element_type(dtype: DataType) -> Option<TensorElementType> {
    Some(match dtype {
        DataType::Bool => TensorElementType::Bool,
        DataType::Uint8 => TensorElementType::Uint8,
        DataType::Uint16 => TensorElementType::Uint16,
        DataType::Uint32 => TensorElementType::Uint32,
        DataType::Uint64 => TensorElementType::Uint64,
        DataType::Int8 => TensorElementType::Int8,
        DataType::Int16 => TensorElementType::Int16,
        DataType::Int32 => TensorElementType::Int32,
        DataType::Int64 => TensorElementType::Int64,
        DataType::Fp16 => TensorElementType::Float16,
        DataType::Bf16 => TensorElementType::Bfloat16,
        DataType::Fp32 => TensorElementType::Float32,
        DataType::Fp64 => TensorElementType::Float64,
        DataType::Bytes => return None,
    })
}

/// An element with a fixed size.
trait Element: PrimitiveTensorElementType + Copy + Debug {
    /// Appends whole elements.
    fn read(bytes: &[u8], out: &mut Vec<Self>);
    fn write(elements: &[Self], out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($element:ty),*) => {$(
        impl Element for $element {
            fn read(bytes: &[u8], out: &mut Vec<Self>) {
                let (elements, _) = bytes.as_chunks();
                out.extend(elements.iter().map(|element| Self::from_le_bytes(*element)));
            }
            fn write(elements: &[Self], out: &mut Vec<u8>) {
                out.extend(elements.iter().flat_map(|element| element.to_le_bytes()));
            }
        }
    )*};
}
elements!(u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);

impl Element for u8 {
    fn read(bytes: &[u8], out: &mut Vec<Self>) {
        out.extend_from_slice(bytes);
    }
    fn write(elements: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(elements);
    }
}

impl Element for bool {
    fn read(bytes: &[u8], out: &mut Vec<Self>) {
        out.extend(bytes.iter().map(|&byte| byte != 0));
    }
    fn write(elements: &[Self], out: &mut Vec<u8>) {
        out.extend(elements.iter().map(|&element| u8::from(element)));
    }
}

/// Appends elements from the pieces in which their bytes came; a piece may end in the midst of one.
fn read_pieces<E: Element>(data: &Data, out: &mut Vec<E>) {
    let size = size_of::<E>();
    let mut cut: Vec<u8> = Vec::new();
    for piece in data.pieces() {
        let mut piece = &piece[..];
        if !cut.is_empty() {
            let (missing, rest) = piece.split_at((size - cut.len()).min(piece.len()));
            cut.extend_from_slice(missing);
            piece = rest;
            if cut.len() == size {
                E::read(&cut, out);
                cut.clear();
            }
        }
        let (whole, rest) = piece.split_at(piece.len() / size * size);
        E::read(whole, out);
        cut.extend_from_slice(rest);
    }
}

/// Bytes of a buffer that are kept from run to run.
const KEPT_BYTES: usize = 8 << 20;
/// Texts of a buffer that are.
const KEPT_TEXTS: usize = 64 << 10;

/// The elements of one input, in ONNX Runtime's own type.
#[derive(Debug)]
pub(crate) enum Buffer {
    Bool(Vec<bool>),
    Uint8(Vec<u8>),
    Uint16(Vec<u16>),
    Uint32(Vec<u32>),
    Uint64(Vec<u64>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Fp16(Vec<f16>),
    Bf16(Vec<bf16>),
    Fp32(Vec<f32>),
    Fp64(Vec<f64>),
    Text(Vec<String>),
}

/// Runs an expression on the vector inside any numeric buffer, or another one on strings.
macro_rules! with_elements {
    ($buffer:expr, $vec:ident => $numeric:expr, $text:ident => $strings:expr) => {
        match $buffer {
            Buffer::Bool($vec) => $numeric,
            Buffer::Uint8($vec) => $numeric,
            Buffer::Uint16($vec) => $numeric,
            Buffer::Uint32($vec) => $numeric,
            Buffer::Uint64($vec) => $numeric,
            Buffer::Int8($vec) => $numeric,
            Buffer::Int16($vec) => $numeric,
            Buffer::Int32($vec) => $numeric,
            Buffer::Int64($vec) => $numeric,
            Buffer::Fp16($vec) => $numeric,
            Buffer::Bf16($vec) => $numeric,
            Buffer::Fp32($vec) => $numeric,
            Buffer::Fp64($vec) => $numeric,
            Buffer::Text($text) => $strings,
        }
    };
}

impl Buffer {
    /// An empty buffer.
    pub(crate) fn new(dtype: DataType) -> Self {
        match dtype {
            DataType::Bool => Self::Bool(Vec::new()),
            DataType::Uint8 => Self::Uint8(Vec::new()),
            DataType::Uint16 => Self::Uint16(Vec::new()),
            DataType::Uint32 => Self::Uint32(Vec::new()),
            DataType::Uint64 => Self::Uint64(Vec::new()),
            DataType::Int8 => Self::Int8(Vec::new()),
            DataType::Int16 => Self::Int16(Vec::new()),
            DataType::Int32 => Self::Int32(Vec::new()),
            DataType::Int64 => Self::Int64(Vec::new()),
            DataType::Fp16 => Self::Fp16(Vec::new()),
            DataType::Bf16 => Self::Bf16(Vec::new()),
            DataType::Fp32 => Self::Fp32(Vec::new()),
            DataType::Fp64 => Self::Fp64(Vec::new()),
            DataType::Bytes => Self::Text(Vec::new()),
        }
    }

    /// Forgets the elements, keeps the memory.
    pub(crate) fn clear(&mut self) {
        with_elements!(self, elements => elements.clear(), strings => strings.clear());
    }

    /// Forgets the elements of a run that was larger than most, and gives their memory back: nobody is charged for it any more.
    pub(crate) fn shrink(&mut self) {
        with_elements!(
            self,
            elements => if size_of_val(&elements[..]) > KEPT_BYTES {
                *elements = Vec::new();
            },
            strings => {
                let few = strings.len() < KEPT_TEXTS;
                if !few || strings.iter().map(String::capacity).sum::<usize>() > KEPT_BYTES {
                    *strings = Vec::new();
                }
            }
        );
    }

    /// Makes room for elements of so many bytes more; false where there is no memory.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        fn room<E>(elements: &mut Vec<E>, bytes: usize) -> bool {
            elements.try_reserve(bytes / size_of::<E>()).is_ok()
        }
        with_elements!(self, elements => room(elements, bytes), strings => room(strings, bytes))
    }

    /// Appends raw little-endian data, already checked to be whole elements.
    ///
    /// # Errors
    /// A string that is not UTF-8, or has a NUL in it: ONNX Runtime's bindings take no other.
    pub(crate) fn push(&mut self, data: &Data) -> Result<(), String> {
        with_elements!(
            self,
            elements => {
                read_pieces(data, elements);
                Ok(())
            },
            strings => {
                for element in bytes_elements(&data.whole()) {
                    let element = element.map_err(|e| e.to_string())?;
                    let text = std::str::from_utf8(element).map_err(|e| format!("a BYTES element is not UTF-8: {e}"))?;
                    if element.contains(&0) {
                        return Err("a BYTES element has a NUL in it, at which ONNX Runtime would end it".to_owned());
                    }
                    strings.push(text.to_owned());
                }
                Ok(())
            }
        )
    }

    /// The elements as an input of a run; borrowed, but for strings.
    pub(crate) fn value(&self, shape: Vec<i64>) -> ort::Result<SessionInputValue<'_>> {
        with_elements!(
            self,
            elements => Ok(TensorRef::from_array_view((shape, elements.as_slice()))?.into()),
            strings => Ok(Tensor::from_string_array((shape, strings.as_slice()))?.into())
        )
    }
}

/// Memory of a text element in a run besides its characters: a `String`, a `CString` with its pointer in a growing list, and
/// ONNX Runtime's `std::string`.
const TEXT_ELEMENT_BYTES: usize = 24 + 3 * 16 + 8 + 32;
/// Copies of an input's characters during a run: one in each of these.
const TEXT_COPIES: usize = 3;
/// Allocator overhead of these copies.
const TEXT_SLACK_BYTES: usize = 8 * TEXT_COPIES;
/// Memory of a text element of an output while it is read: ONNX Runtime's, its offset, the `String`, and its length.
const TEXT_OUTPUT_BYTES: usize = 32 + 8 + 24 + 4;

/// Bytes that a run takes for an input of `bytes` bytes: its elements in ONNX Runtime's own form.
pub(crate) fn run_bytes(dtype: DataType, shape: &[i64], bytes: usize) -> usize {
    if dtype != DataType::Bytes {
        return bytes;
    }
    let count = element_count(shape).unwrap_or(usize::MAX);
    let each = count.saturating_mul(TEXT_ELEMENT_BYTES + TEXT_SLACK_BYTES);
    each.saturating_add(bytes.saturating_mul(TEXT_COPIES))
}

/// Bytes of an output as [`extract`] reads it, or what reading its texts takes beside their characters; 0 for what is no
/// tensor of the protocol.
pub(crate) fn output_bytes(value: &DynValue) -> usize {
    let (Some(shape), Some(dtype)) = (
        value.dtype().tensor_shape(),
        value.dtype().tensor_type().and_then(data_type),
    ) else {
        return 0;
    };
    let count = element_count(shape).unwrap_or(usize::MAX);
    count.saturating_mul(dtype.size().unwrap_or(TEXT_OUTPUT_BYTES))
}

/// An output's shape and data.
///
/// # Errors
/// An output that is no tensor of the protocol's types, or that ONNX Runtime will not hand out.
pub(crate) fn extract(value: &DynValue) -> Result<(Vec<i64>, Bytes), String> {
    fn elements<T: Element>(value: &DynValue) -> Result<(Vec<i64>, Bytes), String> {
        let (shape, elements) = value.try_extract_tensor::<T>().map_err(|e| e.to_string())?;
        let mut data = Vec::new();
        let room = data.try_reserve_exact(size_of_val(elements));
        room.map_err(|_| format!("no memory for an output of {} bytes", size_of_val(elements)))?;
        T::write(elements, &mut data);
        Ok((shape.to_vec(), data.into()))
    }
    let dtype = value.dtype().tensor_type().and_then(data_type);
    match dtype.ok_or_else(|| format!("{} is no tensor of the protocol", value.dtype()))? {
        DataType::Bool => elements::<bool>(value),
        DataType::Uint8 => elements::<u8>(value),
        DataType::Uint16 => elements::<u16>(value),
        DataType::Uint32 => elements::<u32>(value),
        DataType::Uint64 => elements::<u64>(value),
        DataType::Int8 => elements::<i8>(value),
        DataType::Int16 => elements::<i16>(value),
        DataType::Int32 => elements::<i32>(value),
        DataType::Int64 => elements::<i64>(value),
        DataType::Fp16 => elements::<f16>(value),
        DataType::Bf16 => elements::<bf16>(value),
        DataType::Fp32 => elements::<f32>(value),
        DataType::Fp64 => elements::<f64>(value),
        DataType::Bytes => {
            let (shape, strings) = value.try_extract_strings().map_err(|e| e.to_string())?;
            let bytes = strings.iter().map(|text| text.len().saturating_add(4));
            let mut data = Vec::with_capacity(bytes.fold(0, usize::saturating_add));
            for text in &strings {
                let len = u32::try_from(text.len()).map_err(|_| "a string is longer than 4 GiB".to_owned())?;
                data.extend_from_slice(&len.to_le_bytes());
                data.extend_from_slice(text.as_bytes());
            }
            Ok((shape.to_vec(), data.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_pass_through_unchanged(data in prop::collection::vec(any::<u8>(), 0..64), cut: usize) {
            for dtype in DataType::ALL {
                let Some(size) = dtype.size() else { continue };
                let mut data = data[..data.len() / size * size].to_vec();
                if dtype == DataType::Bool {
                    data.iter_mut().for_each(|byte| *byte &= 1);
                }
                let mut buffer = Buffer::new(dtype);
                let cut = cut % (data.len() + 1);
                let mut pieces = Data::from(data[..cut].to_vec());
                pieces.push(data[cut..].to_vec().into());
                buffer.push(&pieces).unwrap();
                let mut back = Vec::new();
                with_elements!(&buffer, elements => Element::write(elements, &mut back), _strings => unreachable!());
                prop_assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn text_must_be_utf8_without_a_nul() {
        let pushed = |text: u8| Buffer::new(DataType::Bytes).push(&vec![1, 0, 0, 0, text].into());
        assert!(pushed(0xff).unwrap_err().contains("UTF-8"));
        assert!(pushed(0).unwrap_err().contains("NUL"));
        assert!(pushed(b'a').is_ok());
    }
}
