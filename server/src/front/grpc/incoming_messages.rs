//! Incoming messages of calls, bounded in size, time and memory, like bodies over HTTP.
//!
//! In: frames. Out: whole messages, in the pieces in which they arrived; or a status that ends the call. Refusals are
//! counted. The bytes stay on the account that is shared with the call until the call ends. A stream may be silent
//! between its messages, but a message that has started must arrive in time. When the server drains, a stream ends
//! between two messages. tonic is bypassed because it would copy each message to its own buffer before the tensor is
//! copied out.

use crate::front::http::body::{BodyPieces, incomplete_body};
use crate::front::http::coding::{Coding, inflate};
use crate::front::state::SharedState;
use crate::request::{Account, Reason, Refusal};
use crate::telemetry::WaitPoint;
use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};
use http::HeaderMap;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tierlab_protocol::infer::Data;
use tokio::task::coop::poll_proceed;
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// Kind of call, which decides when the client may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// One message, which must arrive at once.
    Unary,
    /// Any number of messages, with any pauses between them.
    Stream,
}

/// Message as received.
pub(super) struct ReceivedMessage {
    framed: Framed,
    /// Coding of the call's compressed messages.
    coding: Option<Coding>,
    limit: Limit,
}

impl ReceivedMessage {
    /// Decompresses the message and adds its growth to the account.
    pub(super) fn unpack(self, account: &mut Account) -> Result<Data, Refusal> {
        match (self.framed.compressed, self.coding) {
            (false, _) => Ok(self.framed.data),
            (true, None) => Err(Refusal::bad(
                "message is compressed, but `grpc-encoding` names no compression",
            )),
            (true, Some(coding)) => {
                let inflate = || inflate(coding, &self.framed.data, self.limit.bytes, account);
                tokio::task::block_in_place(inflate)
            }
        }
    }
}

/// Messages of a body, within bounds.
pub(super) struct IncomingMessages {
    body: Body,
    state: SharedState,
    /// Account of bytes that have arrived but are not in the pipeline yet.
    pub(super) received_bytes: Arc<Mutex<Account>>,
    kind: CallKind,
    coding: Option<Coding>,
    /// Limit of one message, as received and when decompressed.
    limit: Limit,
    decoder: FrameDecoder,
    /// Completes when the server begins to drain; `None` if the call ends by itself.
    drain_started: Option<BoxFuture<'static, ()>>,
    /// Timeout of the message being received.
    message_timeout: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl IncomingMessages {
    /// Creates the receiver of a call's body, from the call's headers.
    pub(super) fn new(body: Body, headers: &HeaderMap, state: SharedState, kind: CallKind, limit: Limit) -> Self {
        let encoding = headers.get("grpc-encoding").map(http::HeaderValue::as_bytes);
        Self {
            body,
            received_bytes: Arc::new(Mutex::new(state.pipeline.admission.open_account())),
            drain_started: (kind == CallKind::Stream).then(|| state.drain_started().boxed()),
            state,
            kind,
            coding: match encoding {
                Some(b"gzip") => Some(Coding::Gzip),
                Some(b"deflate") => Some(Coding::Deflate),
                _ => None,
            },
            limit,
            decoder: FrameDecoder::new(limit),
            message_timeout: None,
            ended: false,
        }
    }

    pub(super) fn state(&self) -> SharedState {
        Arc::clone(&self.state)
    }

    /// Receives the single message of a call, with its account.
    pub(super) async fn single_message(mut self) -> Result<(ReceivedMessage, Account), Status> {
        let message = self.next().await;
        let message = message.ok_or_else(|| self.refuse(Refusal::bad("call has no message")))??;
        match self.next().await {
            None => Ok((message, self.received_bytes.lock().split_all())),
            Some(Err(status)) => Err(status),
            Some(Ok(_)) => Err(self.refuse(Refusal::bad("call has a second message; send one"))),
        }
    }

    /// Counts a refusal of the call, and returns its status.
    pub(super) fn refuse(&self, refusal: Refusal) -> Status {
        self.state.metrics().count_refusal("", None, &refusal);
        refusal.into()
    }

    /// True between the messages of a stream.
    fn may_be_idle(&self) -> bool {
        self.kind == CallKind::Stream && !self.decoder.is_incomplete()
    }

    /// Status of a broken call: its client has gone away, or its body is invalid.
    fn broken_call(&self, error: &axum::Error) -> Status {
        let refusal = incomplete_body(error);
        if refusal.reason == Reason::Cancelled {
            if self.may_be_idle() {
                return refusal.into();
            }
            self.state.metrics().count_cancelled(WaitPoint::Body);
        }
        self.refuse(refusal)
    }

    /// Polls for the next message, or the end of the body.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ReceivedMessage>, Status>> {
        if self.may_be_idle()
            && let Some(drain_started) = &mut self.drain_started
            && drain_started.as_mut().poll(cx).is_ready()
        {
            // Received messages whose processing has not started are refused.
            let refusal = Refusal::new(Reason::Draining, "the server is shutting down");
            return Poll::Ready(match self.decoder.chunk.has_remaining() {
                true => Err(self.refuse(refusal)),
                false => Ok(None),
            });
        }
        // Checked before each iteration, so that a client that never pauses cannot escape its time limit.
        if self.message_timeout.is_some()
            && let Poll::Ready(refusal) = self.poll_timeout(cx)
        {
            return Poll::Ready(Err(self.refuse(refusal)));
        }
        loop {
            let framed = self.decoder.next_message().map_err(|refusal| self.refuse(refusal))?;
            if let Some(framed) = framed {
                self.message_timeout = None;
                let (coding, limit) = (self.coding, self.limit);
                return Poll::Ready(Ok(Some(ReceivedMessage { framed, coding, limit })));
            }
            let frame = match poll_proceed(cx) {
                Poll::Ready(budget) => Pin::new(&mut self.body).poll_frame(cx).map(|frame| {
                    budget.made_progress();
                    frame
                }),
                Poll::Pending => Poll::Pending,
            };
            match frame {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    let counted = self.received_bytes.lock().add(chunk.len());
                    counted.map_err(|refusal| self.refuse(refusal))?;
                    self.decoder.push(chunk);
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(self.broken_call(&error)));
                }
                Poll::Ready(None) if self.decoder.is_incomplete() => {
                    return Poll::Ready(Err(self.refuse(Refusal::bad("call ended inside a message"))));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    let refusal = ready!(self.poll_timeout(cx));
                    return Poll::Ready(Err(self.refuse(refusal)));
                }
            }
        }
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        if self.may_be_idle() {
            return Poll::Pending;
        }
        let limit = self.state.pipeline.admission.limits.timeout;
        let message_timeout = self.message_timeout.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(message_timeout.as_mut().poll(cx));
        let what = format!("message did not arrive within {} ms", limit.as_millis());
        Poll::Ready(Refusal::new(Reason::SlowBody, what))
    }
}

impl Stream for IncomingMessages {
    type Item = Result<ReceivedMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let message = ready!(self.poll_message(cx)).transpose();
        // After an error the start of the next message is unknown.
        self.ended = !matches!(message, Some(Ok(_)));
        Poll::Ready(message)
    }
}

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

/// Position of a body within its messages: chunks cut anywhere to messages, in pieces that share the chunks' memory.
/// One message per call: a chunk may hold thousands of empty ones. Source: "Length-Prefixed Message" in
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
#[derive(Debug, Default)]
pub(super) struct FrameDecoder {
    limit: Limit,
    prefix: [u8; PREFIX_BYTES],
    /// Received bytes of the prefix; 0 between messages.
    prefix_len: usize,
    /// Bytes of the message that have not arrived.
    remaining_bytes: usize,
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
                let copied = self.chunk.len().min(PREFIX_BYTES - self.prefix_len);
                self.chunk.copy_to_slice(&mut self.prefix[self.prefix_len..][..copied]);
                self.prefix_len += copied;
                if self.prefix_len < PREFIX_BYTES {
                    break;
                }
                self.begin()?;
            }
            let piece = self.chunk.split_to(self.chunk.len().min(self.remaining_bytes));
            self.remaining_bytes -= piece.len();
            self.pieces.push(piece);
            if self.remaining_bytes == 0 {
                self.prefix_len = 0;
                let (compressed, data) = (self.prefix[0] == 1, self.pieces.take());
                return Ok(Some(Framed { compressed, data }));
            }
        }
        Ok(None)
    }

    /// True inside an incomplete message.
    pub(super) fn is_incomplete(&self) -> bool {
        self.prefix_len > 0
    }

    fn begin(&mut self) -> Result<(), Refusal> {
        let [compressed, length @ ..] = self.prefix;
        self.remaining_bytes = u32::from_be_bytes(length) as usize;
        if self.remaining_bytes > self.limit.bytes {
            let (bytes, Limit { bytes: limit, set_by }) = (self.remaining_bytes, self.limit);
            let message = format!("message of {bytes} bytes exceeds the limit of {limit} ({set_by})");
            return Err(Refusal::new(Reason::TooLarge, message));
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
    use crate::front::http::body::SHARED_PIECE_BYTES;
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
            let (mut decoder, mut at, mut found) = (of(40), 0, Vec::new());
            for cut in cuts.into_iter().cycle() {
                let next = whole.len().min(at + cut);
                decoder.push(whole.slice(at..next));
                at = next;
                found.extend(std::iter::from_fn(|| decoder.next_message().unwrap()));
                prop_assert_eq!(found.len(), ends.iter().filter(|&&end| end <= at).count());
                prop_assert_eq!(decoder.is_incomplete(), at > 0 && !ends.contains(&at));
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
        let mut decoder = of(30_000);
        for range in [
            0..100,
            100..200,
            200..10_000,
            10_000..10_001,
            10_001..10_003,
            10_003..wire.len(),
        ] {
            assert_eq!(decoder.next_message().unwrap(), None);
            decoder.push(wire.slice(range));
        }
        let data = decoder.next_message().unwrap().unwrap().data;
        assert_eq!(data, wire[PREFIX_BYTES..]);
        let lengths: Vec<usize> = data.pieces().map(Bytes::len).collect();
        assert_eq!(lengths, [95, 100, 9800, 3, wire.len() - 10_003]);
        for piece in data.pieces().filter(|piece| piece.len() >= SHARED_PIECE_BYTES) {
            assert!(wire.as_ptr_range().contains(&piece.as_ptr()));
        }
    }

    #[test]
    fn what_is_too_large_or_no_prefix_is_known_at_once() {
        let mut decoder = of(10);
        let mut pushed = |chunk: Bytes| {
            decoder.push(chunk);
            decoder.next_message().map(|message| message.is_some())
        };
        assert!(pushed(message(10, false).into()).unwrap());
        let long = Bytes::from(message(11, false));
        assert!(!pushed(long.slice(..4)).unwrap());
        assert_eq!(pushed(long.slice(4..5)).unwrap_err().reason, Reason::TooLarge);
        let mut decoder = of(10);
        decoder.push(Bytes::from_static(&[2, 0, 0, 0, 1]));
        assert_eq!(decoder.next_message().unwrap_err().reason, Reason::BadRequest);
    }

    #[test]
    fn a_chunk_of_empty_messages_is_cut_as_they_are_taken() {
        let mut decoder = of(10);
        decoder.push(message(0, false).repeat(3000).into());
        for count in 1..=3000 {
            assert!(decoder.next_message().unwrap().unwrap().data.is_empty());
            assert_eq!(decoder.chunk.len(), (3000 - count) * PREFIX_BYTES);
        }
        assert_eq!(decoder.next_message().unwrap(), None);
    }
}
