//! Raw little-endian bytes to ONNX Runtime's values and back, one copy each way.
//!
//! In: tensor data of the protocol. Out: [`Buffer`]s that a session reuses from run to run, and outputs as bytes. The
//! element types of the protocol and of ONNX Runtime are matched here; the trial run of an import has its own match
//! (`models/src/import/independence/elements.rs`), since no crate below both depends on the runtime.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use half::{bf16, f16};
use ort::session::SessionInputValue;
use ort::value::{DynTensor, DynValue, PrimitiveTensorElementType, Tensor, TensorElementType, TensorRef};
use std::fmt::Debug;
use tierlab_protocol::infer::{Data, bytes_elements, push_bytes};
use tierlab_protocol::tensor::{DataType, element_count};
use zerocopy::{Immutable, IntoBytes};

/// Constructor of an empty buffer.
type NewBuffer = fn() -> Box<dyn Buffer>;

/// Element types of the protocol, with their names in ONNX Runtime and their buffers.
const TYPES: [(DataType, TensorElementType, NewBuffer); DataType::ALL.len()] = [
    (DataType::Bool, TensorElementType::Bool, numbers::<bool>),
    (DataType::Uint8, TensorElementType::Uint8, numbers::<u8>),
    (DataType::Uint16, TensorElementType::Uint16, numbers::<u16>),
    (DataType::Uint32, TensorElementType::Uint32, numbers::<u32>),
    (DataType::Uint64, TensorElementType::Uint64, numbers::<u64>),
    (DataType::Int8, TensorElementType::Int8, numbers::<i8>),
    (DataType::Int16, TensorElementType::Int16, numbers::<i16>),
    (DataType::Int32, TensorElementType::Int32, numbers::<i32>),
    (DataType::Int64, TensorElementType::Int64, numbers::<i64>),
    (DataType::Fp16, TensorElementType::Float16, numbers::<f16>),
    (DataType::Bf16, TensorElementType::Bfloat16, numbers::<bf16>),
    (DataType::Fp32, TensorElementType::Float32, numbers::<f32>),
    (DataType::Fp64, TensorElementType::Float64, numbers::<f64>),
    (DataType::Bytes, TensorElementType::String, texts),
];

fn numbers<E: Element>() -> Box<dyn Buffer> {
    Box::new(Vec::<E>::new())
}

fn texts() -> Box<dyn Buffer> {
    Box::new(Vec::<String>::new())
}

/// Returns the protocol's name of an element type of ONNX Runtime; `None` if there is none.
pub(crate) fn data_type(element: TensorElementType) -> Option<DataType> {
    let row = TYPES.iter().find(|(_, name, _)| *name == element);
    row.map(|(dtype, ..)| *dtype)
}

/// ONNX Runtime's name of an element type with a fixed size; `None` for text.
pub(crate) fn element_type(dtype: DataType) -> Option<TensorElementType> {
    let row = TYPES.iter().find(|(name, ..)| *name == dtype);
    row.filter(|_| dtype != DataType::Bytes).map(|(_, element, _)| *element)
}

/// Element of fixed size.
trait Element: PrimitiveTensorElementType + IntoBytes + Immutable + Copy + Debug + 'static {
    /// Whole elements of raw little-endian bytes.
    fn elements(bytes: &[u8]) -> impl Iterator<Item = Self>;
}

macro_rules! elements {
    ($($element:ty),*) => {$(
        impl Element for $element {
            fn elements(bytes: &[u8]) -> impl Iterator<Item = Self> {
                let (elements, _) = bytes.as_chunks();
                elements.iter().map(|element| Self::from_le_bytes(*element))
            }
        }
    )*};
}
elements!(u8, u16, u32, u64, i8, i16, i32, i64, f16, bf16, f32, f64);

impl Element for bool {
    fn elements(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.iter().map(|&byte| byte != 0)
    }
}

/// Appends elements from pieces of their bytes; an element may span two pieces.
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
                out.extend(E::elements(&cut));
                cut.clear();
            }
        }
        let (whole, rest) = piece.split_at(piece.len() / size * size);
        out.extend(E::elements(whole));
        cut.extend_from_slice(rest);
    }
}

/// Maximum bytes of a buffer kept from run to run.
const MAX_RETAINED_BYTES: usize = 8 << 20;
/// Maximum texts of a buffer kept from run to run.
const MAX_RETAINED_TEXTS: usize = 64 << 10;

/// Elements of an input, in ONNX Runtime's own type. Reused from run to run. Also the accesses to tensors of this type.
pub(crate) trait Buffer: Debug {
    /// Removes the elements, keeps the memory.
    fn clear(&mut self);

    /// Removes the elements of an unusually large run and frees their memory, which is no longer counted.
    fn shrink(&mut self);

    /// Reserves memory for elements of `bytes` more bytes; false if there is none.
    fn reserve(&mut self, bytes: usize) -> bool;

    /// Appends raw little-endian data, already checked to be whole elements.
    ///
    /// # Errors
    /// Fails for a string that is not UTF-8 or contains NUL, which ONNX Runtime's bindings do not accept.
    fn push(&mut self, data: &Data) -> Result<()>;

    /// Elements as an input of a run; borrowed, except strings.
    fn value(&self, shape: Vec<i64>) -> ort::Result<SessionInputValue<'_>>;

    /// Writes raw little-endian parts, in order, to all elements of a tensor.
    ///
    /// # Errors
    /// Fails if a part is not whole elements, or if the tensor has another number of elements.
    fn lay_out(&self, tensor: &mut DynTensor, parts: &mut dyn Iterator<Item = &[u8]>) -> Result<()>;

    /// Shape and data of an output of this type.
    fn extract(&self, value: &DynValue) -> Result<(Vec<i64>, Bytes)>;
}

/// An empty buffer.
pub(crate) fn buffer(dtype: DataType) -> Box<dyn Buffer> {
    let row = TYPES.iter().find(|(name, ..)| *name == dtype);
    let (.., new) = row.expect("the table has every type of the protocol");
    new()
}

impl<E: Element> Buffer for Vec<E> {
    fn clear(&mut self) {
        self.clear();
    }

    fn shrink(&mut self) {
        if size_of_val(&self[..]) > MAX_RETAINED_BYTES {
            *self = Self::new();
        }
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        self.try_reserve(bytes / size_of::<E>()).is_ok()
    }

    fn push(&mut self, data: &Data) -> Result<()> {
        read_pieces(data, self);
        Ok(())
    }

    fn value(&self, shape: Vec<i64>) -> ort::Result<SessionInputValue<'_>> {
        Ok(TensorRef::from_array_view((shape, self.as_slice()))?.into())
    }

    fn lay_out(&self, tensor: &mut DynTensor, parts: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let (_, slots) = tensor.try_extract_tensor_mut::<E>()?;
        let mut slots = slots.iter_mut();
        for part in parts {
            if !part.len().is_multiple_of(size_of::<E>()) {
                bail!("a part is not whole elements");
            }
            for element in E::elements(part) {
                *slots.next().context("more elements than the shape has")? = element;
            }
        }
        match slots.next() {
            None => Ok(()),
            Some(_) => bail!("fewer elements than the shape has"),
        }
    }

    fn extract(&self, value: &DynValue) -> Result<(Vec<i64>, Bytes)> {
        let (shape, elements) = value.try_extract_tensor::<E>()?;
        let mut data = Vec::new();
        // Little-endian, like all machines that this is built for.
        let elements = elements.as_bytes();
        let room = data.try_reserve_exact(elements.len());
        room.map_err(|_| anyhow!("no memory for an output of {} bytes", elements.len()))?;
        data.extend_from_slice(elements);
        Ok((shape.to_vec(), data.into()))
    }
}

impl Buffer for Vec<String> {
    fn clear(&mut self) {
        self.clear();
    }

    fn shrink(&mut self) {
        if self.len() >= MAX_RETAINED_TEXTS || self.iter().map(String::capacity).sum::<usize>() > MAX_RETAINED_BYTES {
            *self = Self::new();
        }
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        self.try_reserve(bytes / size_of::<String>()).is_ok()
    }

    fn push(&mut self, data: &Data) -> Result<()> {
        for element in bytes_elements(&data.whole()) {
            let element = element?;
            let text = std::str::from_utf8(element).map_err(|e| anyhow!("a BYTES element is not UTF-8: {e}"))?;
            if element.contains(&0) {
                bail!("a BYTES element contains NUL, where ONNX Runtime would truncate it");
            }
            self.push(text.to_owned());
        }
        Ok(())
    }

    fn value(&self, shape: Vec<i64>) -> ort::Result<SessionInputValue<'_>> {
        Ok(Tensor::from_string_array((shape, self.as_slice()))?.into())
    }

    fn lay_out(&self, _: &mut DynTensor, _: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        bail!("text cannot be bound")
    }

    fn extract(&self, value: &DynValue) -> Result<(Vec<i64>, Bytes)> {
        let (shape, strings) = value.try_extract_strings()?;
        let bytes = strings.iter().map(|text| text.len().saturating_add(4));
        let mut data = Vec::with_capacity(bytes.fold(0, usize::saturating_add));
        for text in &strings {
            ensure!(push_bytes(text.as_bytes(), &mut data), "a string is longer than 4 GiB");
        }
        Ok((shape.to_vec(), data.into()))
    }
}

/// Memory of a text element in a run besides its characters: a `String`, a `CString` with its pointer in a growing
/// list, and ONNX Runtime's `std::string`.
const TEXT_ELEMENT_BYTES: usize = 24 + 3 * 16 + 8 + 32;
/// Number of copies of an input's characters during a run, one in each of these.
const TEXT_COPIES: usize = 3;
/// Allocator overhead of these copies.
const TEXT_SLACK_BYTES: usize = 8 * TEXT_COPIES;
/// Memory of a text element of an output while it is read: ONNX Runtime's, its offset, the `String`, and its length.
const TEXT_OUTPUT_BYTES: usize = 32 + 8 + 24 + 4;

/// Memory of an input of `bytes` bytes during a run: its elements in ONNX Runtime's own form.
pub(crate) fn run_bytes(dtype: DataType, shape: &[i64], bytes: usize) -> usize {
    if dtype != DataType::Bytes {
        return bytes;
    }
    let count = element_count(shape).unwrap_or(usize::MAX);
    let each = count.saturating_mul(TEXT_ELEMENT_BYTES + TEXT_SLACK_BYTES);
    each.saturating_add(bytes.saturating_mul(TEXT_COPIES))
}

/// Size of an output as read by [`extract`]; for texts, the memory besides their characters; 0 for other values.
pub(crate) fn output_bytes(value: &DynValue) -> usize {
    let dtype = value.dtype().tensor_type().and_then(data_type);
    let Some((shape, dtype)) = value.dtype().tensor_shape().zip(dtype) else {
        return 0;
    };
    let count = element_count(shape).unwrap_or(usize::MAX);
    count.saturating_mul(dtype.size().unwrap_or(TEXT_OUTPUT_BYTES))
}

/// Shape and data of an output.
///
/// # Errors
/// Fails if the output is not a tensor of the protocol's types, or if ONNX Runtime does not return it.
pub(crate) fn extract(value: &DynValue) -> Result<(Vec<i64>, Bytes)> {
    let dtype = value.dtype().tensor_type().and_then(data_type);
    let dtype = dtype.with_context(|| format!("{} is not a tensor of the protocol", value.dtype()))?;
    buffer(dtype).extract(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes bytes in two pieces and writes the elements back.
    fn check<E: Element>(data: &[u8], cut: usize) {
        let data = &data[..data.len() / size_of::<E>() * size_of::<E>()];
        let (before, behind) = data.split_at(cut % (data.len() + 1));
        let mut pieces = Data::from(before.to_vec());
        pieces.push(behind.to_vec().into());
        let mut elements = Vec::<E>::new();
        Buffer::push(&mut elements, &pieces).unwrap();
        assert_eq!(elements.as_bytes(), data);
    }

    proptest! {
        #[test]
        fn numbers_pass_through_unchanged(data in prop::collection::vec(any::<u8>(), 0..64), cut: usize) {
            let bools: Vec<u8> = data.iter().map(|byte| byte & 1).collect();
            check::<bool>(&bools, cut);
            check::<u8>(&data, cut);
            check::<u16>(&data, cut);
            check::<u32>(&data, cut);
            check::<u64>(&data, cut);
            check::<i8>(&data, cut);
            check::<i16>(&data, cut);
            check::<i32>(&data, cut);
            check::<i64>(&data, cut);
            check::<f16>(&data, cut);
            check::<bf16>(&data, cut);
            check::<f32>(&data, cut);
            check::<f64>(&data, cut);
        }
    }

    #[test]
    fn text_must_be_utf8_without_a_nul() {
        let pushed = |text: u8| buffer(DataType::Bytes).push(&vec![1, 0, 0, 0, text].into());
        assert!(pushed(0xff).unwrap_err().to_string().contains("UTF-8"));
        assert!(pushed(0).unwrap_err().to_string().contains("NUL"));
        assert!(pushed(b'a').is_ok());
    }
}
