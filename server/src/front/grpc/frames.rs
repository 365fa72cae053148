//! gRPC's framing: message boundaries.
//!
//! In: chunks of a body, cut anywhere. Out: messages, in pieces that share the chunks' memory, one per call: a chunk
//! may hold thousands of empty ones. Source: "Length-Prefixed Message" in
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use crate::front::http::body::BodyPieces;
use crate::request::{Reason, Refusal};
use bytes::{Buf, Bytes};
use tierlab_protocol::infer::Data;

/// Bytes before each message: its compression flag and its length.
const PREFIX_BYTES: usize = 5;

/// Maximum size of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bytes: usize,
    /// Name of the setting in the refusal's message.
    pub(super) set_by: &'static str,
}

/// A whole message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Framed {
    pub(super) compressed: bool,
    pub(super) data: Data,
}

/// Position of a body within its messages.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    limit: Limit,
    prefix: [u8; PREFIX_BYTES],
    /// Received bytes of the prefix; 0 between messages.
    prefix_len: usize,
    /// Bytes of the message that have not arrived.
    missing: usize,
    pieces: BodyPieces,
    /// Received bytes that are not cut into messages yet.
    chunk: Bytes,
}

impl FrameDecoder {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Adds the next chunk, once all messages of the previous one were taken.
    pub(super) fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the previous chunk is used up");
        self.chunk = chunk;
    }

    /// Next complete message; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Fails for a message above the limit, known from its prefix, or with an invalid prefix.
    pub(super) fn next_message(&mut self) -> Result<Option<Framed>, Refusal> {
        while self.chunk.has_remaining() {
            if self.prefix_len < PREFIX_BYTES {
                let taken = self.chunk.len().min(PREFIX_BYTES - self.prefix_len);
                self.chunk.copy_to_slice(&mut self.prefix[self.prefix_len..][..taken]);
                self.prefix_len += taken;
                if self.prefix_len < PREFIX_BYTES {
                    break;
                }
                self.begin()?;
            }
            let piece = self.chunk.split_to(self.chunk.len().min(self.missing));
            self.missing -= piece.len();
            self.pieces.push(piece);
            if self.missing == 0 {
                self.prefix_len = 0;
                let (compressed, data) = (self.prefix[0] == 1, self.pieces.take());
                return Ok(Some(Framed { compressed, data }));
            }
        }
        Ok(None)
    }

    /// True if bytes are there that belong to no message that was taken.
    pub(super) fn has_rest(&self) -> bool {
        self.chunk.has_remaining()
    }

    /// True inside an incomplete message.
    pub(super) fn is_inside(&self) -> bool {
        self.prefix_len > 0
    }

    fn begin(&mut self) -> Result<(), Refusal> {
        let [compressed, length @ ..] = self.prefix;
        self.missing = u32::from_be_bytes(length) as usize;
        if self.missing > self.limit.bytes {
            let (bytes, Limit { bytes: limit, set_by }) = (self.missing, self.limit);
            let what = format!("message of {bytes} bytes exceeds the limit of {limit} ({set_by})");
            return Err(Refusal::new(Reason::TooLarge, what));
        }
        if compressed > 1 {
            return Err(Refusal::bad(format!(
                "invalid compression flag: {compressed}; use 0 or 1"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::http::body::KEPT_BYTES;
    use proptest::prelude::*;

    fn of(bytes: usize) -> FrameDecoder {
        let set_by = "`admission.max_body_bytes`";
        FrameDecoder::new(Limit { bytes, set_by })
    }

    fn message(bytes: usize, compressed: bool) -> Vec<u8> {
        let mut message = vec![u8::from(compressed)];
        message.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        message.extend((0..bytes).map(|i| (i % 251) as u8));
        message
    }

    proptest! {
        #[test]
        fn messages_are_told_apart_however_they_are_cut(
            sizes in prop::collection::vec((0_usize..40, any::<bool>()), 0..8),
            cuts in prop::collection::vec(1_usize..30, 1..40),
        ) {
            let wire: Vec<Vec<u8>> = sizes.iter().map(|&(size, compressed)| message(size, compressed)).collect();
            let ends: Vec<usize> = wire.iter().scan(0, |at, one| { *at += one.len(); Some(*at) }).collect();
            let whole = Bytes::from(wire.concat());
            let (mut cutter, mut at, mut found) = (of(40), 0, Vec::new());
            for cut in cuts.into_iter().cycle() {
                let next = whole.len().min(at + cut);
                cutter.push(whole.slice(at..next));
                at = next;
                found.extend(std::iter::from_fn(|| cutter.next_message().unwrap()));
                prop_assert_eq!(found.len(), ends.iter().filter(|&&end| end <= at).count());
                prop_assert_eq!(cutter.is_inside(), at > 0 && !ends.contains(&at));
                if at == whole.len() {
                    break;
                }
            }
            let expected: Vec<Framed> = sizes.iter().zip(&wire).map(|(&(_, compressed), wire)| Framed {
                compressed,
                data: wire[PREFIX_BYTES..].to_vec().into(),
            }).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn large_pieces_are_shared_and_small_ones_brought_together() {
        let wire = Bytes::from(message(30_000, false));
        let mut cutter = of(30_000);
        for range in [
            0..100,
            100..200,
            200..10_000,
            10_000..10_001,
            10_001..10_003,
            10_003..wire.len(),
        ] {
            assert_eq!(cutter.next_message().unwrap(), None);
            cutter.push(wire.slice(range));
        }
        let data = cutter.next_message().unwrap().unwrap().data;
        assert_eq!(data, wire[PREFIX_BYTES..]);
        let lengths: Vec<usize> = data.pieces().map(Bytes::len).collect();
        assert_eq!(lengths, [95, 100, 9800, 3, wire.len() - 10_003]);
        for piece in data.pieces().filter(|piece| piece.len() >= KEPT_BYTES) {
            assert!(wire.as_ptr_range().contains(&piece.as_ptr()));
        }
    }

    #[test]
    fn what_is_too_large_or_no_prefix_is_known_at_once() {
        let mut cutter = of(10);
        let mut pushed = |chunk: Bytes| {
            cutter.push(chunk);
            cutter.next_message().map(|message| message.is_some())
        };
        assert!(pushed(message(10, false).into()).unwrap());
        let long = Bytes::from(message(11, false));
        assert!(!pushed(long.slice(..4)).unwrap());
        assert_eq!(pushed(long.slice(4..5)).unwrap_err().reason, Reason::TooLarge);
        let mut cutter = of(10);
        cutter.push(Bytes::from_static(&[2, 0, 0, 0, 1]));
        assert_eq!(cutter.next_message().unwrap_err().reason, Reason::BadRequest);
    }

    #[test]
    fn a_chunk_of_empty_messages_is_cut_as_they_are_taken() {
        let mut cutter = of(10);
        cutter.push(message(0, false).repeat(3000).into());
        for taken in 1..=3000 {
            assert!(cutter.next_message().unwrap().unwrap().data.is_empty());
            assert_eq!(cutter.chunk.len(), (3000 - taken) * PREFIX_BYTES);
        }
        assert_eq!(cutter.next_message().unwrap(), None);
    }
}
