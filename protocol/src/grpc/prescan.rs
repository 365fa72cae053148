//! Scan of an encoded `ModelInferRequest` before any of it is decoded.
//!
//! In: a message's bytes, in pieces. Out: its raw contents and the rest, sharing memory, and an upper bound of the
//! memory for decoding the rest; or an error if there are too many entries. An empty entry is two bytes on the wire and
//! a hundred or more once decoded, so entries are counted, not bytes.
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::messages::{InferParameter, InferRequestedOutputTensor, InferTensor};
use crate::infer::{BadRequest, Data, DataReader, MAX_RANK, MAX_TENSORS};
use bytes::{Buf, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint};

/// Maximum parameters of a request, including those of its inputs and outputs.
pub const MAX_PARAMETERS: usize = 256;
/// Memory of a list that grows by doubling, relative to its content: up to twice, and once more while it is moved.
const GROWTH: usize = 3;
/// Memory of a map entry, including its key and the map's free slots.
const PARAMETER_BYTES: usize = 4 * (size_of::<InferParameter>() + size_of::<String>());

/// Field numbers of `ModelInferRequest`.
mod request {
    pub(super) const PARAMETERS: u32 = 4;
    pub(super) const INPUTS: u32 = 5;
    pub(super) const OUTPUTS: u32 = 6;
    pub(super) const RAW_INPUT_CONTENTS: u32 = 7;
}

/// Field numbers of `InferInputTensor`.
mod input {
    pub(super) const SHAPE: u32 = 3;
    pub(super) const PARAMETERS: u32 = 4;
    pub(super) const CONTENTS: u32 = 5;
}

/// The field number of `InferRequestedOutputTensor`'s parameters.
const OUTPUT_PARAMETERS: u32 = 2;

pub(super) fn malformed(what: impl std::fmt::Display) -> BadRequest {
    BadRequest(format!("malformed request: {what}"))
}

fn too_many(what: &str, most: usize) -> BadRequest {
    BadRequest(format!("`{what}`: more than {most}"))
}

/// Result of the scan.
pub(super) struct Prescan<'a> {
    /// Data of the raw contents fields.
    pub(super) raw: Vec<Data>,
    /// The message without these fields.
    pub(super) rest: Data,
    /// Reader behind the last of these fields.
    behind: DataReader<'a>,
    inputs: usize,
    outputs: usize,
    parameters: usize,
    /// Bytes of the elements of all typed contents, once decoded.
    element_bytes: usize,
}

impl<'a> Prescan<'a> {
    /// Scans a message.
    ///
    /// # Errors
    /// Malformed messages, and too many entries of a kind.
    pub(super) fn of(data: &'a Data) -> Result<Self, BadRequest> {
        let mut found = Self {
            raw: Vec::new(),
            rest: Data::default(),
            behind: data.reader(),
            inputs: 0,
            outputs: 0,
            parameters: 0,
            element_bytes: 0,
        };
        fields(&mut data.reader(), data.len(), |reader, field| {
            found.request_field(reader, &field)
        })?;
        found.behind.share_into(found.behind.remaining(), &mut found.rest);
        Ok(found)
    }

    /// Returns an upper bound of the memory for decoding the rest.
    pub(super) fn built_bytes(&self) -> usize {
        let entries = self.inputs * size_of::<InferTensor>() + self.outputs * size_of::<InferRequestedOutputTensor>();
        // Elements count twice: decoded, and as the tensor's bytes. Names and texts are copied.
        (entries + self.element_bytes)
            .saturating_mul(GROWTH)
            .saturating_add(self.element_bytes)
            .saturating_add(self.parameters * PARAMETER_BYTES)
            .saturating_add(self.rest.len())
    }

    fn request_field(&mut self, reader: &mut DataReader<'_>, field: &Field) -> Result<(), BadRequest> {
        let Some(len) = field.len else { return Ok(()) };
        match field.number {
            request::PARAMETERS => self.count_parameter()?,
            request::INPUTS => {
                self.inputs += 1;
                if self.inputs > MAX_TENSORS {
                    return Err(too_many("inputs", MAX_TENSORS));
                }
                let mut rank = 0;
                fields(reader, len, |reader, field| self.input_field(reader, &field, &mut rank))?;
            }
            request::OUTPUTS => {
                self.outputs += 1;
                if self.outputs > MAX_TENSORS {
                    return Err(too_many("outputs", MAX_TENSORS));
                }
                fields(reader, len, |_, field| match field.number {
                    OUTPUT_PARAMETERS => self.count_parameter(),
                    _ => Ok(()),
                })?;
            }
            request::RAW_INPUT_CONTENTS => {
                if self.raw.len() == MAX_TENSORS {
                    return Err(too_many("raw_input_contents", MAX_TENSORS));
                }
                let before = self.behind.remaining() - field.left;
                self.behind.share_into(before, &mut self.rest);
                self.behind.advance(field.left - reader.remaining());
                self.raw.push(self.behind.share(len));
            }
            _ => {}
        }
        Ok(())
    }

    fn input_field(&mut self, reader: &mut DataReader<'_>, field: &Field, rank: &mut usize) -> Result<(), BadRequest> {
        match (field.number, field.len) {
            (input::SHAPE, len) => {
                *rank += len.map_or(1, |len| varints(reader, len));
                if *rank > MAX_RANK {
                    return Err(BadRequest(format!("`shape` has more than {MAX_RANK} dimensions")));
                }
                Ok(())
            }
            (input::PARAMETERS, Some(_)) => self.count_parameter(),
            (input::CONTENTS, Some(len)) => fields(reader, len, |reader, field| {
                self.contents_field(reader, &field);
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    /// Scans a list of `InferTensorContents`: packed, or one by one.
    fn contents_field(&mut self, reader: &mut DataReader<'_>, field: &Field) {
        let size = match field.number {
            1 => size_of::<bool>(),
            2 | 4 | 6 => size_of::<u32>(),
            3 | 5 | 7 => size_of::<u64>(),
            8 => size_of::<Bytes>(),
            _ => return,
        };
        let count = match (field.number, field.len) {
            (_, None) | (8, _) => 1,
            (6 | 7, Some(len)) => len / size,
            (_, Some(len)) => varints(reader, len),
        };
        self.element_bytes = self.element_bytes.saturating_add(count.saturating_mul(size));
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
    number: u32,
    /// Bytes of the message left at the start of its key.
    left: usize,
    /// Length of a length-delimited field. The reader is at its start.
    len: Option<usize>,
}

/// Calls `each` with the fields of the next `len` bytes; it may read a field's bytes or leave them.
fn fields<'a>(
    reader: &mut DataReader<'a>,
    len: usize,
    mut each: impl FnMut(&mut DataReader<'a>, Field) -> Result<(), BadRequest>,
) -> Result<(), BadRequest> {
    let end = reader.remaining() - len;
    while reader.remaining() > end {
        let left = reader.remaining();
        let (number, kind) = decode_key(reader).map_err(malformed)?;
        let len = match kind {
            WireType::Varint => decode_varint(reader).map_err(malformed).map(|_| 0)?,
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => decode_varint(reader).map_err(malformed)?,
            _ => return Err(malformed(format!("unsupported wire type {kind:?}"))),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let behind = reader.remaining().checked_sub(len).filter(|&behind| behind >= end);
        let behind = behind.ok_or_else(|| malformed("a field is longer than its message"))?;
        let len = (kind == WireType::LengthDelimited).then_some(len);
        each(reader, Field { number, left, len })?;
        reader.advance(reader.remaining() - behind);
    }
    Ok(())
}

/// Number of varints in the next `len` bytes: the last byte of each is below 128.
fn varints(reader: &mut DataReader<'_>, mut len: usize) -> usize {
    let mut count = 0;
    while len > 0 {
        let here = &reader.chunk()[..len.min(reader.chunk().len())];
        count += here.iter().filter(|&&byte| byte < 0x80).count();
        len -= here.len();
        reader.advance(here.len());
    }
    count
}
