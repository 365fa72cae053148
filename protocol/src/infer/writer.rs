//! Writes a body: its JSON part, then the binary data.
//!
//! In: tensors and pieces of JSON. Out: the body and the length of its JSON part. A large body is written in pieces, so
//! that nothing is moved as it grows. Written bytes are reserved in a [`MemoryBudget`]; large binary data is shared,
//! not copied.

use super::MemoryBudget;
use super::data::Data;
use super::tensor::{Tensor, bytes_elements};
use crate::tensor::DataType;
use bytes::Bytes;

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Size at which a piece is full, in bytes.
const FULL_BYTES: usize = PIECE_BYTES - PIECE_BYTES / 8;
/// Elements written between two checks of the budget.
const BLOCK: usize = 4096;
/// Bytes of text written between two checks of the budget; escaped text takes up to six times as many.
const TEXT_BLOCK: usize = 16 << 10;
/// Typical bytes of a number in JSON, with its comma.
const NUMBER_BYTES: usize = 13;
/// Binary data of at least this many bytes is shared; less is copied.
const SHARED_BYTES: usize = 64 << 10;

/// Encoded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Pieces of the body, in order.
    pub pieces: Vec<Piece>,
    /// Length of the JSON part, if binary data follows it.
    pub json_len: Option<usize>,
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes written for this body.
    Own(Bytes),
    /// Data of a tensor.
    Shared(Bytes),
}

impl Piece {
    /// Returns the piece's bytes.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Own(bytes) | Self::Shared(bytes) => bytes,
        }
    }

    /// Converts the piece to its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(bytes) | Self::Shared(bytes) => bytes,
        }
    }
}

impl Encoded {
    /// Joins the pieces of the body.
    #[must_use]
    pub fn into_data(self) -> Data {
        let mut data = Data::default();
        self.pieces.into_iter().for_each(|piece| data.push(piece.into_bytes()));
        data
    }
}

/// Writes the JSON of a body, then its binary data.
pub(super) struct Writer<'a> {
    budget: &'a dyn MemoryBudget,
    out: Vec<u8>,
    pieces: Vec<Piece>,
    /// Bytes in `pieces`.
    len: usize,
    /// Reserved bytes of `out`.
    counted: usize,
    over_budget: bool,
}

impl<'a> Writer<'a> {
    /// Creates a writer for `fixed` bytes of JSON and the tensors; `binary` is true for tensors to write after the JSON
    /// part.
    pub(super) fn new(fixed: usize, tensors: &[Tensor], binary: &[bool], budget: &'a dyn MemoryBudget) -> Self {
        let expected = |(tensor, &binary): (&Tensor, &bool)| {
            let size = tensor.dtype.size().unwrap_or(1).max(1);
            let data = match binary {
                true if tensor.data.len() < SHARED_BYTES => tensor.data.len(),
                true => 0,
                false => tensor.data.len() / size * NUMBER_BYTES,
            };
            96 + tensor.name.len() + data
        };
        let tensors: usize = tensors.iter().zip(binary).map(expected).sum();
        let mut writer = Self {
            budget,
            out: Vec::new(),
            pieces: Vec::new(),
            len: 0,
            counted: 0,
            over_budget: false,
        };
        writer.reserve((fixed + tensors).min(PIECE_BYTES));
        writer
    }

    fn reserve(&mut self, bytes: usize) {
        self.over_budget |= !self.budget.take(bytes);
        if !self.over_budget {
            self.out = Vec::with_capacity(bytes);
        }
        self.counted = bytes;
    }

    /// Reserves the growth of the piece, and starts another if it is full; false if the budget is exhausted.
    fn within_budget(&mut self) -> bool {
        let grown = self.out.capacity().saturating_sub(self.counted);
        if grown > 0 {
            self.over_budget |= !self.budget.take(grown);
            self.counted += grown;
        }
        if self.out.len() >= FULL_BYTES {
            self.end_piece();
            self.reserve(PIECE_BYTES);
        }
        !self.over_budget
    }

    fn end_piece(&mut self) {
        let piece = std::mem::take(&mut self.out);
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push(Piece::Own(piece.into()));
        }
    }

    pub(super) fn raw(&mut self, json: &str) -> &mut Self {
        self.out.extend_from_slice(json.as_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        json(&mut self.out, text);
        self
    }

    pub(super) fn tensors(&mut self, tensors: &[Tensor], binary: &[bool]) -> &mut Self {
        self.raw("[");
        for (i, (tensor, &binary)) in tensors.iter().zip(binary).enumerate() {
            self.raw(if i > 0 { "," } else { "" });
            self.raw("{\"name\":").text(&tensor.name);
            self.raw(",\"datatype\":\"")
                .raw(tensor.dtype.as_str())
                .raw("\",\"shape\":");
            json(&mut self.out, &tensor.shape);
            if binary {
                self.raw(",\"parameters\":{\"binary_data_size\":");
                json(&mut self.out, &tensor.data.len());
                self.raw("}}");
            } else {
                self.raw(",\"data\":[");
                self.elements(tensor);
                self.raw("]}");
            }
        }
        self.raw("]")
    }

    /// Writes a tensor's elements, flat; floats as the shortest text that reads back exactly.
    fn elements(&mut self, tensor: &Tensor) {
        let size = tensor.dtype.size().unwrap_or(1);
        let cut_between_elements =
            tensor.dtype != DataType::Bytes && tensor.data.pieces().all(|piece| piece.len() % size == 0);
        let mut is_first = true;
        if cut_between_elements {
            for piece in tensor.data.pieces() {
                for block in piece.chunks(BLOCK * size) {
                    numbers(tensor.dtype, block, &mut is_first, &mut self.out);
                    if !self.within_budget() {
                        return;
                    }
                }
            }
            return;
        }
        let data = tensor.data.whole();
        if tensor.dtype != DataType::Bytes {
            return numbers(tensor.dtype, &data, &mut is_first, &mut self.out);
        }
        for (i, element) in bytes_elements(&data).enumerate() {
            let text = element.ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
            comma(&mut is_first, &mut self.out);
            let text = text.expect("only BYTES tensors of UTF-8 are written as JSON");
            if !self.long_text(text) {
                return;
            }
            if (i % BLOCK == BLOCK - 1 || self.out.len() >= FULL_BYTES) && !self.within_budget() {
                return;
            }
        }
        self.within_budget();
    }

    /// Writes a text block by block; false if the budget is exhausted.
    fn long_text(&mut self, text: &str) -> bool {
        let (first, mut rest) = text.split_at(text.floor_char_boundary(TEXT_BLOCK));
        json(&mut self.out, first);
        while !rest.is_empty() {
            // Drops the closing quote, and below the opening one: both are inside the text.
            self.out.pop();
            if !self.within_budget() {
                return false;
            }
            let begin = self.out.len();
            let (block, remainder) = rest.split_at(rest.floor_char_boundary(TEXT_BLOCK));
            json(&mut self.out, block);
            self.out.remove(begin);
            rest = remainder;
        }
        true
    }

    /// Returns the body, unless the budget was exhausted.
    pub(super) fn finish(mut self, tensors: &[Tensor], binary: &[bool]) -> Option<Encoded> {
        let json_len = self.len + self.out.len();
        for (tensor, _) in tensors.iter().zip(binary).filter(|(_, binary)| **binary) {
            for piece in tensor.data.pieces() {
                if piece.len() < SHARED_BYTES {
                    self.out.extend_from_slice(piece);
                    self.within_budget();
                } else {
                    self.end_piece();
                    self.len += piece.len();
                    self.counted = 0;
                    self.pieces.push(Piece::Shared(piece.clone()));
                }
            }
        }
        self.within_budget();
        self.end_piece();
        (!self.over_budget).then_some(Encoded {
            pieces: self.pieces,
            json_len: binary.contains(&true).then_some(json_len),
        })
    }
}

fn comma(is_first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::replace(is_first, false) {
        out.push(b',');
    }
}

/// Numbers and strings cannot fail to serialise into memory.
pub(super) fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("writing a scalar to memory");
}

/// Writes the numbers of a block, separated by commas.
///
/// # Panics
/// When the type has no JSON form, or is `BYTES`.
fn numbers(dtype: DataType, block: &[u8], is_first: &mut bool, out: &mut Vec<u8>) {
    macro_rules! each {
        ($number:ty, |$value:ident, $out:ident| $write:expr) => {
            for chunk in block.as_chunks::<{ size_of::<$number>() }>().0 {
                let $value = <$number>::from_le_bytes(*chunk);
                comma(is_first, out);
                let $out = &mut *out;
                $write;
            }
        };
    }
    macro_rules! floats {
        ($number:ty) => {
            each!($number, |value, out| if value.is_finite() {
                json(out, &value);
            } else {
                out.extend_from_slice(literal(value.is_nan(), value < 0.0).as_bytes());
            })
        };
    }
    match dtype {
        DataType::Bool => each!(u8, |value, out| json(out, &(value != 0))),
        DataType::Uint8 => each!(u8, |value, out| json(out, &value)),
        DataType::Uint16 => each!(u16, |value, out| json(out, &value)),
        DataType::Uint32 => each!(u32, |value, out| json(out, &value)),
        DataType::Uint64 => each!(u64, |value, out| json(out, &value)),
        DataType::Int8 => each!(i8, |value, out| json(out, &value)),
        DataType::Int16 => each!(i16, |value, out| json(out, &value)),
        DataType::Int32 => each!(i32, |value, out| json(out, &value)),
        DataType::Int64 => each!(i64, |value, out| json(out, &value)),
        DataType::Fp32 => floats!(f32),
        DataType::Fp64 => floats!(f64),
        DataType::Fp16 | DataType::Bf16 | DataType::Bytes => panic!("{dtype} has no JSON numbers"),
    }
}

/// Returns the literal of a number without a JSON form, as Triton writes it.
fn literal(is_nan: bool, is_negative: bool) -> &'static str {
    match (is_nan, is_negative) {
        (true, _) => "NaN",
        (false, true) => "-Infinity",
        (false, false) => "Infinity",
    }
}
