//! A `ModelInferRequest` in the pieces in which it arrived.
//!
//! In: a message's bytes. Out: the message without its `raw_input_contents`, and these separately, in pieces that share
//! the received memory. prost would join the pieces, which copies every tensor once.
//! Wire format: <https://protobuf.dev/programming-guides/encoding/>.

use super::messages::ModelInferRequest;
use super::prescan::{Prescan, malformed};
use crate::infer::{BadRequest, Data, MemoryBudget, OVER_BUDGET, Unlimited};
use prost::Message;

/// Request as received.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReceivedRequest {
    /// Message with `raw_input_contents` left empty.
    pub message: ModelInferRequest,
    /// `raw_input_contents`.
    pub raw: Vec<Data>,
}

impl ReceivedRequest {
    /// Reads a message. Everything except the raw contents is copied into one piece if it arrived in several.
    ///
    /// # Errors
    /// Malformed messages, and too many entries.
    pub fn decode(data: &Data) -> Result<Self, BadRequest> {
        Self::decode_within(data, &Unlimited)
    }

    /// Same as [`ReceivedRequest::decode`], but reserves the memory of decoded values, typed contents included, before it is
    /// allocated.
    ///
    /// # Errors
    /// Same as [`ReceivedRequest::decode`], and a refusal by `budget`.
    pub fn decode_within(data: &Data, budget: &dyn MemoryBudget) -> Result<Self, BadRequest> {
        let prescan = Prescan::of(data)?;
        let rest_bytes = if data.is_whole() { 0 } else { prescan.rest.len() };
        let built = prescan.built_bytes() + rest_bytes;
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

#[cfg(test)]
mod tests {
    use super::super::messages::{InferParameter, InferTensor, InferTensorContents, ParameterChoice};
    use super::super::prescan::MAX_PARAMETERS;
    use super::*;
    use crate::infer::MAX_TENSORS;
    use bytes::Bytes;
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
                let error = ReceivedRequest::decode(&data).unwrap_err();
                assert!(error.to_string().contains(named), "{error}: should say {named}");
            }
        }
        let most = [
            many(0x2a, MAX_TENSORS),
            many(0x32, MAX_TENSORS),
            many(0x22, MAX_PARAMETERS),
        ]
        .concat();
        assert!(ReceivedRequest::decode(&most.into()).is_ok());
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
            let error = ReceivedRequest::decode(&wire.slice(..end).into()).unwrap_err();
            assert!(error.to_string().contains("malformed request"), "{error}");
        }
        let many = message(&[], &vec![vec![]; MAX_TENSORS + 1]).encode_to_vec();
        let error = ReceivedRequest::decode(&many.into()).unwrap_err();
        assert!(error.to_string().contains("raw_input_contents"), "{error}");
    }
}
