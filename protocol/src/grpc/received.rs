//! A `ModelInferRequest` in the pieces in which it arrived.
//!
//! In: a message's bytes. Out: the message without its `raw_input_contents`, and these separately, in pieces that share
//! the received memory. prost would join the pieces, which copies every tensor once.
//!
//! Before any of it is decoded, the message is scanned for an upper bound of the memory that decoding takes. An empty
//! entry is two bytes on the wire and a hundred or more once decoded, so entries are counted, not bytes.
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::messages::{InferParameter, InferRequestedOutputTensor, InferTensor, ModelInferRequest};
use crate::infer::{BadRequest, Data, DataReader, MAX_RANK, MAX_TENSORS, MemoryBudget, OVER_BUDGET};
use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

/// Request as received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedRequest {
    /// Message with `raw_input_contents` left empty.
    pub message: ModelInferRequest,
    /// `raw_input_contents`.
    pub raw: Vec<Data>,
}

impl ReceivedRequest {
    /// Reads a message. Everything except the raw contents is copied into one piece if it arrived in several. Reserves
    /// the memory of decoded values, typed contents included, before it is allocated.
    ///
    /// # Errors
    /// Malformed messages, too many entries, and a refusal by `budget`.
    pub fn decode_within(data: &Data, budget: &dyn MemoryBudget) -> Result<Self, BadRequest> {
        let prescan = Prescan::of(data)?;
        let remaining_bytes = if data.is_whole() { 0 } else { prescan.rest.len() };
        let built = prescan.built_bytes() + remaining_bytes;
        if built > FREE_BYTES && !budget.take(built) {
            return Err(BadRequest(OVER_BUDGET.to_owned()));
        }
        let Prescan { raw, rest, .. } = prescan;
        let message = ModelInferRequest::decode(rest.into_whole()).map_err(|e| malformed(&e))?;
        Ok(Self { message, raw })
    }
}

/// Smaller amounts are not reserved: reading a request with raw contents needs no more.
const FREE_BYTES: usize = 16 << 10;

impl From<ModelInferRequest> for ReceivedRequest {
    fn from(mut message: ModelInferRequest) -> Self {
        let raw = std::mem::take(&mut message.raw_input_contents);
        Self {
            message,
            raw: raw.into_iter().map(Data::from).collect(),
        }
    }
}

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

fn malformed(detail: impl std::fmt::Display) -> BadRequest {
    BadRequest(format!("malformed request: {detail}"))
}

/// Counts an entry of `field`.
fn count(entries: &mut usize, field: &str, most: usize) -> Result<(), BadRequest> {
    *entries += 1;
    match *entries > most {
        true => Err(BadRequest(format!("`{field}`: more than {most}"))),
        false => Ok(()),
    }
}

/// Result of the scan.
struct Prescan<'a> {
    /// Data of the raw contents fields.
    raw: Vec<Data>,
    /// The message without these fields.
    rest: Data,
    /// Reader behind the last of these fields.
    after_raw: DataReader<'a>,
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
    fn of(data: &'a Data) -> Result<Self, BadRequest> {
        let mut found = Self {
            raw: Vec::new(),
            rest: Data::default(),
            after_raw: data.reader(),
            inputs: 0,
            outputs: 0,
            parameters: 0,
            element_bytes: 0,
        };
        fields(&mut data.reader(), data.len(), |reader, field| {
            found.request_field(reader, &field)
        })?;
        found.after_raw.share_into(found.after_raw.remaining(), &mut found.rest);
        Ok(found)
    }

    /// Returns an upper bound of the memory for decoding the rest.
    fn built_bytes(&self) -> usize {
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
                count(&mut self.inputs, "inputs", MAX_TENSORS)?;
                let mut rank = 0;
                fields(reader, len, |reader, field| self.input_field(reader, &field, &mut rank))?;
            }
            request::OUTPUTS => {
                count(&mut self.outputs, "outputs", MAX_TENSORS)?;
                fields(reader, len, |_, field| match field.number {
                    OUTPUT_PARAMETERS => self.count_parameter(),
                    _ => Ok(()),
                })?;
            }
            request::RAW_INPUT_CONTENTS => {
                count(&mut self.raw.len(), "raw_input_contents", MAX_TENSORS)?;
                let before = self.after_raw.remaining() - field.left;
                self.after_raw.share_into(before, &mut self.rest);
                self.after_raw.advance(field.left - reader.remaining());
                self.raw.push(self.after_raw.share(len));
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
        count(&mut self.parameters, "parameters", MAX_PARAMETERS)
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
        let after = reader.remaining().checked_sub(len).filter(|&after| after >= end);
        let after = after.ok_or_else(|| malformed("a field is longer than its message"))?;
        let len = (kind == WireType::LengthDelimited).then_some(len);
        each(reader, Field { number, left, len })?;
        reader.advance(reader.remaining() - after);
    }
    Ok(())
}

/// Number of varints in the next `len` bytes: the last byte of each is below 128.
fn varints(reader: &mut DataReader<'_>, mut len: usize) -> usize {
    let mut count = 0;
    while len > 0 {
        let chunk = &reader.chunk()[..len.min(reader.chunk().len())];
        count += chunk.iter().filter(|&&byte| byte < 0x80).count();
        len -= chunk.len();
        reader.advance(chunk.len());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::messages::{InferTensorContents, ParameterChoice};
    use super::*;
    use crate::infer::Unlimited;
    use proptest::prelude::*;

    fn decode(data: &Data) -> Result<ReceivedRequest, BadRequest> {
        ReceivedRequest::decode_within(data, &Unlimited)
    }

    fn cut(bytes: &Bytes, at: &[usize]) -> Data {
        let mut at: Vec<usize> = at.iter().map(|at| at % (bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let mut data = Data::default();
        at.windows(2).for_each(|ends| data.push(bytes.slice(ends[0]..ends[1])));
        data
    }

    fn message(names: &[String], raw: &[Vec<u8>]) -> ModelInferRequest {
        let choice = InferParameter {
            parameter_choice: Some(ParameterChoice::Int64Param(7)),
        };
        ModelInferRequest {
            model_name: "m".into(),
            id: names.concat(),
            parameters: [("timeout".to_owned(), choice)].into(),
            inputs: names
                .iter()
                .map(|name| InferTensor {
                    name: name.clone(),
                    shape: vec![1, 300],
                    contents: Some(InferTensorContents {
                        fp32_contents: vec![0.5; name.len()],
                        ..InferTensorContents::default()
                    }),
                    ..InferTensor::default()
                })
                .collect(),
            raw_input_contents: raw.iter().map(|raw| Bytes::from(raw.clone())).collect(),
            ..ModelInferRequest::default()
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_they_are_cut(
            names in prop::collection::vec("[a-z]{0,200}", 0..4),
            raw in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..4),
            at in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            let message = message(&names, &raw);
            let wire = Bytes::from(message.encode_to_vec());
            let read = decode(&cut(&wire, &at)).unwrap();
            prop_assert_eq!(read, ReceivedRequest::from(message));
        }

        #[test]
        fn any_bytes_are_what_prost_makes_of_them_or_refused(
            body in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x3a), Just(0x2a), 0..9_u8], 0..100),
            at in prop::collection::vec(any::<usize>(), 0..4),
        ) {
            let body = Bytes::from(body);
            // Groups, which this protocol never had, are refused where prost passes over them.
            if let Ok(read) = decode(&cut(&body, &at)) {
                let whole = ModelInferRequest::decode(body).map(ReceivedRequest::from);
                prop_assert_eq!(Some(read), whole.ok());
            }
        }
    }

    #[test]
    fn raw_contents_are_never_copied() {
        let message = message(&["x".into()], &[vec![7; 1000], vec![8; 500]]);
        let wire = Bytes::from(message.encode_to_vec());
        let data = cut(&wire, &[200, 300, 1100]);
        let read = decode(&data).unwrap();
        let pieces: Vec<&Bytes> = read.raw.iter().flat_map(Data::pieces).collect();
        assert!(pieces.len() > 2);
        for piece in pieces {
            assert!(wire.as_ptr_range().contains(&piece.as_ptr()));
        }
    }

    #[test]
    fn empty_entries_are_counted_before_they_are_built() {
        // Two bytes each on the wire: an empty message in field 4, 5, 6 or 7, or in a nested field of an input.
        let many = |key: u8, count: usize| [key, 0].repeat(count);
        let inside = |outer: u8, inner: Vec<u8>| {
            let mut message = vec![outer];
            prost::encoding::encode_varint(inner.len() as u64, &mut message);
            message.extend(inner);
            message
        };
        for (wire, named) in [
            (many(0x2a, MAX_TENSORS + 1), "`inputs`: more than 256"),
            (many(0x32, MAX_TENSORS + 1), "`outputs`: more than 256"),
            (many(0x3a, MAX_TENSORS + 1), "`raw_input_contents`: more than 256"),
            (many(0x22, MAX_PARAMETERS + 1), "`parameters`: more than 256"),
            (
                inside(0x2a, many(0x22, MAX_PARAMETERS + 1)),
                "`parameters`: more than 256",
            ),
            (
                inside(0x32, many(0x12, MAX_PARAMETERS + 1)),
                "`parameters`: more than 256",
            ),
            (inside(0x2a, many(0x18, 17)), "`shape` has more than 16"),
            (inside(0x2a, inside(0x1a, vec![1; 17])), "`shape` has more than 16"),
        ] {
            for data in [Data::from(wire.clone()), cut(&wire.clone().into(), &[1, 2, 7])] {
                let error = decode(&data).unwrap_err();
                assert!(error.to_string().contains(named), "{error}: should say {named}");
            }
        }
        let most = [
            many(0x2a, MAX_TENSORS),
            many(0x32, MAX_TENSORS),
            many(0x22, MAX_PARAMETERS),
        ]
        .concat();
        assert!(decode(&most.into()).is_ok());
    }

    /// A budget of so many bytes, with what was reserved.
    struct Least(usize, std::cell::Cell<usize>);

    impl MemoryBudget for Least {
        fn take(&self, bytes: usize) -> bool {
            self.1.set(self.1.get() + bytes);
            self.1.get() <= self.0
        }
    }

    proptest! {
        #[test]
        fn what_is_built_was_asked_for_before(
            count in 5_000_usize..20_000, kind in 0_usize..4, packed in any::<bool>(), at in prop::collection::vec(any::<usize>(), 0..4),
        ) {
            // An element on the wire, the key of its list alone and packed, and its bytes in memory.
            let (one, alone, together, size): (&[u8], u8, u8, usize) = [
                (&[1][..], 0x08, 0x0a, 1),
                (&[1][..], 0x18, 0x1a, 8),
                (&[0, 0, 0, 0][..], 0x35, 0x32, 4),
                (&[0][..], 0x42, 0x42, size_of::<Bytes>()),
            ][kind];
            let mut list = Vec::new();
            if packed && kind < 3 {
                list.push(together);
                prost::encoding::encode_varint((count * one.len()) as u64, &mut list);
                list.extend(one.repeat(count));
            } else {
                list = [&[alone][..], one].concat().repeat(count);
            }
            let mut wire = list;
            for key in [0x2a, 0x2a] {
                let mut outer = vec![key];
                prost::encoding::encode_varint(wire.len() as u64, &mut outer);
                outer.extend(wire);
                wire = outer;
            }
            let data = cut(&wire.into(), &at);
            let budget = Least(usize::MAX, 0.into());
            let read = ReceivedRequest::decode_within(&data, &budget).unwrap();
            prop_assert_eq!(read.message.inputs.len(), 1);
            let contents = read.message.inputs[0].contents.clone().unwrap();
            let held = contents.bool_contents.capacity() + contents.int64_contents.capacity() * 8
                + contents.fp32_contents.capacity() * 4 + contents.bytes_contents.capacity() * size_of::<Bytes>();
            prop_assert!(held >= count * size);
            prop_assert!(budget.1.get() >= 2 * held.min(2 * count * size), "{} asked for, {held} held", budget.1.get());
            let none = Least(1000, 0.into());
            prop_assert!(ReceivedRequest::decode_within(&data, &none).is_err());
        }
    }

    #[test]
    fn what_is_cut_short_or_too_much_is_refused() {
        let wire = Bytes::from(message(&["x".into()], &[vec![7; 100]]).encode_to_vec());
        for end in [1, wire.len() - 101, wire.len() - 1] {
            let error = decode(&wire.slice(..end).into()).unwrap_err();
            assert!(error.to_string().contains("malformed request"), "{error}");
        }
        let many = message(&[], &vec![vec![]; MAX_TENSORS + 1]).encode_to_vec();
        let error = decode(&many.into()).unwrap_err();
        assert!(error.to_string().contains("raw_input_contents"), "{error}");
    }
}
