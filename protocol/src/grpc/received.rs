//! A `ModelInferRequest` in the pieces in which it came from the network.
//!
//! In: a message's bytes. Out: the message without its `raw_input_contents`, and these beside it, in pieces that share the
//! memory of what came: prost would bring the pieces of each together, which copies a tensor once more than it has to be.
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::messages::ModelInferRequest;
use crate::infer::{BadRequest, Data, MAX_TENSORS};
use bytes::Bytes;
use prost::Message;
use std::collections::VecDeque;
use std::ops::Range;

/// A request as it came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedRequest {
    /// Everything but `raw_input_contents`, which is empty here.
    pub message: ModelInferRequest,
    /// `raw_input_contents`.
    pub raw: Vec<Data>,
}

/// The field number of `raw_input_contents`.
const RAW_INPUT_CONTENTS: u64 = 7;
/// Bytes of a varint at most.
const VARINT_BYTES: u32 = 10;

impl ReceivedRequest {
    /// Reads a message. What is not raw contents is brought together where it came in several pieces.
    ///
    /// # Errors
    /// Bytes that are no such message, or more raw contents than a request may have inputs.
    pub fn decode(data: &Data) -> Result<Self, BadRequest> {
        let mut pieces = Pieces(data.pieces().cloned().collect());
        let (mut raw, mut rest) = (Vec::new(), Data::default());
        let mut at = 0;
        for field in raw_contents(data)? {
            pieces.take(field.begin - at, &mut rest);
            pieces.take(field.contents.start - field.begin, &mut Data::default());
            let mut contents = Data::default();
            pieces.take(field.contents.len(), &mut contents);
            raw.push(contents);
            at = field.contents.end;
        }
        pieces.take(data.len() - at, &mut rest);
        let message = ModelInferRequest::decode(rest.into_whole()).map_err(|e| malformed(&e))?;
        Ok(Self { message, raw })
    }
}

impl From<ModelInferRequest> for ReceivedRequest {
    fn from(mut message: ModelInferRequest) -> Self {
        let raw = std::mem::take(&mut message.raw_input_contents);
        Self {
            message,
            raw: raw.into_iter().map(Data::from).collect(),
        }
    }
}

fn malformed(what: impl std::fmt::Display) -> BadRequest {
    BadRequest(format!("malformed request: {what}"))
}

/// A field of raw contents: where its key begins, and its contents.
struct Field {
    begin: usize,
    contents: Range<usize>,
}

/// Looks for the fields of raw contents, passing over all others.
fn raw_contents(data: &Data) -> Result<Vec<Field>, BadRequest> {
    let mut found = Vec::new();
    let mut cursor = Cursor::new(data);
    while cursor.at < cursor.len {
        let begin = cursor.at;
        let key = cursor.varint()?;
        match key & 7 {
            0 => {
                cursor.varint()?;
            }
            1 => cursor.skip(8)?,
            2 => {
                let length = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
                let from = cursor.at;
                cursor.skip(length)?;
                if key >> 3 == RAW_INPUT_CONTENTS {
                    found.push(Field {
                        begin,
                        contents: from..cursor.at,
                    });
                }
            }
            5 => cursor.skip(4)?,
            other => return Err(malformed(format!("wire type {other}"))),
        }
        if found.len() > MAX_TENSORS {
            return Err(BadRequest(format!("`raw_input_contents`: more than {MAX_TENSORS}")));
        }
    }
    Ok(found)
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

    fn skip(&mut self, mut bytes: usize) -> Result<(), BadRequest> {
        if bytes > self.len - self.at {
            return Err(malformed("a field is longer than the message"));
        }
        self.at += bytes;
        while bytes > self.piece.len() {
            bytes -= self.piece.len();
            self.piece = self.next.next().map_or(&[], |piece| piece);
        }
        self.piece = &self.piece[bytes..];
        Ok(())
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

/// Pieces to be taken off from the front.
struct Pieces(VecDeque<Bytes>);

impl Pieces {
    fn take(&mut self, mut bytes: usize, into: &mut Data) {
        while bytes > 0 {
            let Some(mut piece) = self.0.pop_front() else { return };
            if piece.len() > bytes {
                self.0.push_front(piece.split_off(bytes));
            }
            bytes -= piece.len();
            into.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{InferParameter, InferTensor, InferTensorContents, ParameterChoice};
    use super::*;
    use proptest::prelude::*;

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
            parameter_choice: Some(ParameterChoice::Int64(7)),
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
            let read = ReceivedRequest::decode(&cut(&wire, &at)).unwrap();
            prop_assert_eq!(read, ReceivedRequest::from(message));
        }

        #[test]
        fn any_bytes_are_what_prost_makes_of_them_or_refused(
            body in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x3a), Just(0x2a), 0..9_u8], 0..100),
            at in prop::collection::vec(any::<usize>(), 0..4),
        ) {
            let body = Bytes::from(body);
            // Groups, which this protocol never had, are refused where prost passes over them.
            if let Ok(read) = ReceivedRequest::decode(&cut(&body, &at)) {
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
        let read = ReceivedRequest::decode(&data).unwrap();
        let pieces: Vec<&Bytes> = read.raw.iter().flat_map(Data::pieces).collect();
        assert!(pieces.len() > 2);
        for piece in pieces {
            assert!(wire.as_ptr_range().contains(&piece.as_ptr()));
        }
    }

    #[test]
    fn what_is_cut_short_or_too_much_is_refused() {
        let wire = Bytes::from(message(&["x".into()], &[vec![7; 100]]).encode_to_vec());
        for end in [1, wire.len() - 101, wire.len() - 1] {
            let error = ReceivedRequest::decode(&wire.slice(..end).into()).unwrap_err();
            assert!(error.to_string().contains("malformed request"), "{error}");
        }
        let many = message(&[], &vec![vec![]; MAX_TENSORS + 1]).encode_to_vec();
        let error = ReceivedRequest::decode(&many.into()).unwrap_err();
        assert!(error.to_string().contains("raw_input_contents"), "{error}");
    }
}
