//! The body of an infer call while it arrives: bounded in size, time and memory, like a body over HTTP.
//!
//! In: frames. Out: the same frames, or a status that ends the call; each refusal is counted. The bytes stay on the
//! account that is shared with the call until it is done. A stream may be silent between its messages, but a message that
//! has begun has to arrive.

use super::Server;
use crate::admission::Account;
use crate::refusal::{Reason, Refusal};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The account of what has arrived and is not taken into the pipeline yet.
#[derive(Clone)]
pub(super) struct Arrived(Arc<Mutex<Account>>);

impl Arrived {
    pub(super) fn open(state: &Server) -> Self {
        Self(Arc::new(Mutex::new(state.pipeline.admission.open_account())))
    }

    /// Counts bytes that are about to be kept.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(bytes)
    }

    /// Takes over what has been counted so far; later bytes go on a new account.
    pub(super) fn take(&self, state: &Server) -> Account {
        let next = state.pipeline.admission.open_account();
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), next)
    }
}

/// Where a body is in its messages.
#[derive(Debug, Default)]
struct Framing {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have come; 0 between messages.
    prefix_len: usize,
    /// Bytes of the message that have not come.
    missing: usize,
}

impl Framing {
    /// Takes a chunk: the messages that end in it, or the length of one above the limit.
    fn advance(&mut self, mut chunk: &[u8], limit: usize) -> Result<usize, usize> {
        let mut ended = 0;
        while !chunk.is_empty() {
            if self.prefix_len < PREFIX_BYTES {
                let taken = chunk.len().min(PREFIX_BYTES - self.prefix_len);
                let (head, rest) = chunk.split_at(taken);
                self.prefix[self.prefix_len..][..taken].copy_from_slice(head);
                self.prefix_len += taken;
                chunk = rest;
                if self.prefix_len < PREFIX_BYTES {
                    break;
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
                if self.missing > limit {
                    return Err(self.missing);
                }
            }
            let taken = chunk.len().min(self.missing);
            chunk = &chunk[taken..];
            self.missing -= taken;
            if self.missing == 0 {
                self.prefix_len = 0;
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Whether a message has begun and not ended.
    fn is_inside(&self) -> bool {
        self.prefix_len > 0
    }
}

/// What a body is: this decides when its client may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One message, which has to come at once.
    Call,
    /// Any number of them, whenever the client likes.
    Stream,
}

/// A body that is bounded.
pub(super) struct Arriving {
    body: Body,
    state: Server,
    arrived: Arrived,
    kind: Kind,
    framing: Framing,
    /// Set when a message has to be waited for, until it is there.
    late: Option<Pin<Box<Sleep>>>,
    /// When the last frame was handed on: the time until the next one is asked for is not the client's.
    handed_on: Option<Instant>,
}

impl Arriving {
    pub(super) fn new(body: Body, state: &Server, arrived: &Arrived, kind: Kind) -> Self {
        Self {
            body,
            state: Arc::clone(state),
            arrived: arrived.clone(),
            kind,
            framing: Framing::default(),
            late: None,
            handed_on: None,
        }
    }

    fn refuse(&self, refusal: Refusal) -> Status {
        self.state.metrics().count_refusal("", None, &refusal);
        refusal.into()
    }

    /// Checks a chunk of the body.
    fn check(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        let limit = self.state.pipeline.admission.limits.max_body_bytes;
        let ended = self.framing.advance(chunk, limit).map_err(|bytes| {
            let what = format!("the message has {bytes} bytes, the most taken is {limit}");
            Refusal::new(Reason::TooLarge, what)
        })?;
        if ended > 0 {
            self.late = None;
        } else if self.late.is_some() {
            self.handed_on = Some(Instant::now());
        }
        self.arrived.add(chunk.len())
    }

    /// Puts the limit off by the time that nobody asked for the body.
    fn make_up(&mut self) {
        if let (Some(handed_on), Some(late)) = (self.handed_on.take(), &mut self.late) {
            let until = late.deadline() + handed_on.elapsed();
            late.as_mut().reset(until);
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        if self.kind == Kind::Stream && !self.framing.is_inside() {
            return Poll::Pending;
        }
        let limit = self.state.pipeline.admission.limits.timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(late.as_mut().poll(cx));
        let what = format!("the message did not arrive within {} ms", limit.as_millis());
        Poll::Ready(Refusal::new(Reason::SlowBody, what))
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.make_up();
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let checked = frame.data_ref().map_or(Ok(()), |chunk| self.check(chunk));
                Poll::Ready(Some(match checked {
                    Ok(()) => Ok(frame),
                    Err(refusal) => Err(self.refuse(refusal)),
                }))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::cancelled(format!("the call ended early: {error}")))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let refusal = ready!(self.poll_late(cx));
                Poll::Ready(Some(Err(self.refuse(refusal))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(bytes: usize) -> Vec<u8> {
        let mut message = vec![0];
        message.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        message.resize(PREFIX_BYTES + bytes, 7);
        message
    }

    proptest! {
        #[test]
        fn messages_are_told_apart_however_they_are_cut(
            sizes in prop::collection::vec(0_usize..40, 0..8), cuts in prop::collection::vec(1_usize..30, 1..40),
        ) {
            let ends: Vec<usize> = sizes.iter().scan(0, |at, &size| { *at += PREFIX_BYTES + size; Some(*at) }).collect();
            let whole: Vec<u8> = sizes.iter().flat_map(|&size| message(size)).collect();
            let (mut framing, mut at, mut ended) = (Framing::default(), 0, 0);
            for cut in cuts.into_iter().cycle() {
                let next = whole.len().min(at + cut);
                ended += framing.advance(&whole[at..next], 40).unwrap();
                at = next;
                prop_assert_eq!(ended, ends.iter().filter(|&&end| end <= at).count());
                prop_assert_eq!(framing.is_inside(), at > 0 && !ends.contains(&at));
                if at == whole.len() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_message_above_the_limit_is_known_from_its_prefix() {
        let mut framing = Framing::default();
        assert_eq!(framing.advance(&message(10), 10), Ok(1));
        let long = message(11);
        assert_eq!(framing.advance(&long[..4], 10), Ok(0));
        assert_eq!(framing.advance(&long[4..5], 10), Err(11));
    }
}
