//! Scan of an encoded `ModelInferRequest` before any of it is decoded.
//!
//! In: a message's bytes, in pieces. Out: the ranges of its raw contents, and an upper bound of the memory for decoding the
//! rest; or a refusal of a request with too many entries. An empty entry is two bytes on the wire and a hundred or more once it
//! is decoded, so entries are counted, not bytes. Wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::messages::{InferParameter, InferRequestedOutputTensor, InferTensor};
use crate::infer::{BadRequest, Data, MAX_RANK, MAX_TENSORS};
use bytes::Bytes;
use std::ops::Range;

/// Parameters of a request, with those of its inputs and outputs, at most.
pub const MAX_PARAMETERS: usize = 256;
/// Bytes of a varint at most.
const VARINT_BYTES: u32 = 10;
/// A list that grows by doubling holds twice what is in it at most, and as much again while it is moved.
const GROWTH: usize = 3;
/// An entry of a map, with its key and what the table keeps free.
const PARAMETER_BYTES: usize = 4 * (size_of::<InferParameter>() + size_of::<String>());

/// Field numbers of `ModelInferRequest`.
mod request {
    pub(super) const PARAMETERS: u64 = 4;
    pub(super) const INPUTS: u64 = 5;
    pub(super) const OUTPUTS: u64 = 6;
    pub(super) const RAW_INPUT_CONTENTS: u64 = 7;
}

/// Field numbers of `InferInputTensor`.
mod input {
    pub(super) const SHAPE: u64 = 3;
    pub(super) const PARAMETERS: u64 = 4;
    pub(super) const CONTENTS: u64 = 5;
}

/// The field number of `InferRequestedOutputTensor`'s parameters.
const OUTPUT_PARAMETERS: u64 = 2;

pub(super) fn malformed(what: impl std::fmt::Display) -> BadRequest {
    BadRequest(format!("malformed request: {what}"))
}

fn too_many(what: &str, most: usize) -> BadRequest {
    BadRequest(format!("`{what}`: more than {most}"))
}

/// A field of raw contents: where its key begins, and its contents.
pub(super) struct RawField {
    pub(super) begin: usize,
    pub(super) contents: Range<usize>,
}

/// Result of the scan.
#[derive(Default)]
pub(super) struct Prescan {
    pub(super) raw: Vec<RawField>,
    inputs: usize,
    outputs: usize,
    parameters: usize,
    /// Bytes of the elements of all typed contents, once they are decoded.
    element_bytes: usize,
}

impl Prescan {
    /// Scans a message.
    ///
    /// # Errors
    /// Bytes that are no message, and more entries of a kind than a request may have.
    pub(super) fn of(data: &Data) -> Result<Self, BadRequest> {
        let mut found = Self::default();
        let mut cursor = Cursor::new(data);
        let end = cursor.len;
        cursor.fields(end, |cursor, field| found.request_field(cursor, field))?;
        Ok(found)
    }

    /// The most memory that decoding takes, raw contents aside; `rest` is the length of the message without them.
    pub(super) fn built_bytes(&self, rest: usize) -> usize {
        let entries = self.inputs * size_of::<InferTensor>() + self.outputs * size_of::<InferRequestedOutputTensor>();
        // Elements as they are decoded, then once more as the tensor's bytes; names and texts are copied.
        (entries + self.element_bytes)
            .saturating_mul(GROWTH)
            .saturating_add(self.element_bytes)
            .saturating_add(self.parameters * PARAMETER_BYTES)
            .saturating_add(rest)
    }

    fn request_field(&mut self, cursor: &mut Cursor<'_>, field: Field) -> Result<(), BadRequest> {
        let Content::Bytes(range) = field.content else {
            return Ok(());
        };
        match field.number {
            request::PARAMETERS => self.count_parameter()?,
            request::INPUTS => {
                self.inputs += 1;
                if self.inputs > MAX_TENSORS {
                    return Err(too_many("inputs", MAX_TENSORS));
                }
                let mut rank = 0;
                cursor.fields(range.end, |cursor, field| self.input_field(cursor, field, &mut rank))?;
            }
            request::OUTPUTS => {
                self.outputs += 1;
                if self.outputs > MAX_TENSORS {
                    return Err(too_many("outputs", MAX_TENSORS));
                }
                cursor.fields(range.end, |_, field| match field.number {
                    OUTPUT_PARAMETERS => self.count_parameter(),
                    _ => Ok(()),
                })?;
            }
            request::RAW_INPUT_CONTENTS => {
                if self.raw.len() == MAX_TENSORS {
                    return Err(too_many("raw_input_contents", MAX_TENSORS));
                }
                self.raw.push(RawField {
                    begin: field.begin,
                    contents: range,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn input_field(&mut self, cursor: &mut Cursor<'_>, field: Field, rank: &mut usize) -> Result<(), BadRequest> {
        match (field.number, field.content) {
            (input::SHAPE, content) => {
                *rank += match content {
                    Content::Bytes(range) => cursor.varints(range.end)?,
                    Content::Number => 1,
                };
                if *rank > MAX_RANK {
                    return Err(BadRequest(format!("`shape` has more than {MAX_RANK} dimensions")));
                }
                Ok(())
            }
            (input::PARAMETERS, Content::Bytes(_)) => self.count_parameter(),
            (input::CONTENTS, Content::Bytes(range)) => {
                cursor.fields(range.end, |cursor, field| self.contents_field(cursor, &field))
            }
            _ => Ok(()),
        }
    }

    /// A list of `InferTensorContents`: packed, or one by one.
    fn contents_field(&mut self, cursor: &mut Cursor<'_>, field: &Field) -> Result<(), BadRequest> {
        let size = match field.number {
            1 => size_of::<bool>(),
            2 | 4 | 6 => size_of::<u32>(),
            3 | 5 | 7 => size_of::<u64>(),
            8 => size_of::<Bytes>(),
            _ => return Ok(()),
        };
        let count = match (field.number, &field.content) {
            (_, Content::Number) | (8, _) => 1,
            (6 | 7, Content::Bytes(range)) => range.len() / size,
            (_, Content::Bytes(range)) => cursor.varints(range.end)?,
        };
        self.element_bytes = self.element_bytes.saturating_add(count.saturating_mul(size));
        Ok(())
    }

    fn count_parameter(&mut self) -> Result<(), BadRequest> {
        self.parameters += 1;
        if self.parameters > MAX_PARAMETERS {
            return Err(too_many("parameters", MAX_PARAMETERS));
        }
        Ok(())
    }
}

/// A field of a message.
struct Field {
    /// Offset of its key.
    begin: usize,
    number: u64,
    content: Content,
}

enum Content {
    /// A varint or a fixed number, which is skipped.
    Number,
    /// Range of the bytes. The cursor is at their start.
    Bytes(Range<usize>),
}

/// A place in bytes that lie in pieces.
struct Cursor<'a> {
    /// The rest of the piece that it is in.
    piece: &'a [u8],
    next: Box<dyn Iterator<Item = &'a Bytes> + 'a>,
    at: usize,
    len: usize,
}

impl<'a> Cursor<'a> {
    fn new(data: &'a Data) -> Self {
        Self {
            piece: &[],
            next: Box::new(data.pieces()),
            at: 0,
            len: data.len(),
        }
    }

    /// Calls `each` with the fields up to `end`; it may read a field's bytes or leave them.
    fn fields(
        &mut self,
        end: usize,
        mut each: impl FnMut(&mut Self, Field) -> Result<(), BadRequest>,
    ) -> Result<(), BadRequest> {
        while self.at < end {
            let begin = self.at;
            let key = self.varint()?;
            let content = match key & 7 {
                0 => {
                    self.varint()?;
                    Content::Number
                }
                1 => {
                    self.skip(8, end)?;
                    Content::Number
                }
                2 => {
                    let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                    let from = self.at;
                    let to = from.checked_add(length).filter(|&to| to <= end);
                    Content::Bytes(from..to.ok_or_else(|| malformed("a field is longer than its message"))?)
                }
                5 => {
                    self.skip(4, end)?;
                    Content::Number
                }
                other => return Err(malformed(format!("wire type {other}"))),
            };
            let to = match &content {
                Content::Bytes(range) => range.end,
                Content::Number => self.at,
            };
            let number = key >> 3;
            each(self, Field { begin, number, content })?;
            self.skip(to.saturating_sub(self.at), end)?;
        }
        if self.at == end {
            Ok(())
        } else {
            Err(malformed("a field is longer than its message"))
        }
    }

    fn skip(&mut self, mut bytes: usize, end: usize) -> Result<(), BadRequest> {
        if bytes > end.saturating_sub(self.at) {
            return Err(malformed("a field is longer than its message"));
        }
        self.at += bytes;
        while bytes > self.piece.len() {
            bytes -= self.piece.len();
            self.piece = self.next.next().map_or(&[], |piece| piece);
        }
        self.piece = &self.piece[bytes..];
        Ok(())
    }

    /// Number of varints up to `end`: the last byte of each is below 128.
    fn varints(&mut self, end: usize) -> Result<usize, BadRequest> {
        let mut count = 0;
        while self.at < end {
            if self.piece.is_empty() {
                self.piece = self.next.next().map_or(&[], |piece| piece);
            }
            let here = self.piece.len().min(end - self.at);
            count += self.piece[..here].iter().filter(|&&byte| byte < 0x80).count();
            self.skip(here, end)?;
        }
        Ok(count)
    }

    fn varint(&mut self) -> Result<u64, BadRequest> {
        let mut value = 0;
        for index in 0..VARINT_BYTES {
            while self.piece.is_empty() && self.at < self.len {
                self.piece = self.next.next().map_or(&[], |piece| piece);
            }
            let (&byte, rest) = self
                .piece
                .split_first()
                .ok_or_else(|| malformed("it ends in a number"))?;
            self.piece = rest;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(malformed("a number of more than 10 bytes"))
    }
}
