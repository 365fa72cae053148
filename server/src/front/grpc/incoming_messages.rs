//! Incoming messages of calls, bounded in size, time and memory, like bodies over HTTP.
//!
//! In: frames. Out: whole messages, in the pieces in which they arrived; or a status that ends the call. Refusals are
//! counted. The bytes stay on the account that is shared with the call until the call ends. A stream may be silent
//! between its messages, but a message that has started must arrive in time. When the server drains, a stream ends
//! between two messages. tonic is bypassed because it would copy each message to its own buffer before the tensor is
//! copied out.

use super::frames::{FrameDecoder, Framed, Limit};
use crate::front::http::body::ended_early;
use crate::front::http::coding::{Coding, inflate};
use crate::front::state::SharedState;
use crate::request::{Account, Reason, Refusal};
use crate::telemetry::WaitPoint;
use axum::body::{Body, HttpBody};
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
    cutter: FrameDecoder,
    /// Completes when the server begins to drain; `None` if the call ends by itself.
    drain_begins: Option<BoxFuture<'static, ()>>,
    /// Timeout of the message being received.
    late: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl IncomingMessages {
    /// Creates the receiver of a call's body, from the call's headers.
    pub(super) fn new(body: Body, headers: &HeaderMap, state: SharedState, kind: CallKind, limit: Limit) -> Self {
        let encoding = headers.get("grpc-encoding").map(http::HeaderValue::as_bytes);
        Self {
            body,
            received_bytes: Arc::new(Mutex::new(state.pipeline.admission.open_account())),
            drain_begins: (kind == CallKind::Stream).then(|| state.drain_begins().boxed()),
            state,
            kind,
            coding: match encoding {
                Some(b"gzip") => Some(Coding::Gzip),
                Some(b"deflate") => Some(Coding::Deflate),
                _ => None,
            },
            limit,
            cutter: FrameDecoder::new(limit),
            late: None,
            ended: false,
        }
    }

    pub(super) fn state(&self) -> SharedState {
        Arc::clone(&self.state)
    }

    /// Receives the single message of a call, with its account.
    pub(super) async fn only(mut self) -> Result<(ReceivedMessage, Account), Status> {
        let Some(message) = self.next().await else {
            return Err(self.refuse(Refusal::bad("call has no message")));
        };
        let message = message?;
        match self.next().await {
            None => Ok((message, self.received_bytes.lock().split_all())),
            Some(Err(status)) => Err(status),
            Some(Ok(_)) => Err(self.refuse(Refusal::bad("call has a second message; send one"))),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Status {
        self.state.metrics().count_refusal("", None, &refusal);
        refusal.into()
    }

    /// True between the messages of a stream.
    fn may_be_silent(&self) -> bool {
        self.kind == CallKind::Stream && !self.cutter.is_inside()
    }

    /// Status of a broken call: its client has gone away, or its body is invalid.
    fn broken(&self, error: &axum::Error) -> Status {
        let refusal = ended_early(error);
        if refusal.reason == Reason::Cancelled {
            if self.may_be_silent() {
                return refusal.into();
            }
            self.state.metrics().count_cancelled(WaitPoint::Body);
        }
        self.refuse(refusal)
    }

    /// Ends a stream when the server drains. Received messages whose processing has not started are refused.
    fn end_early(&self) -> Result<Option<ReceivedMessage>, Status> {
        if self.cutter.has_rest() {
            let refusal = Refusal::new(Reason::Draining, "the server is shutting down");
            return Err(self.refuse(refusal));
        }
        Ok(None)
    }

    /// Polls for the next message, or the end of the body.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<ReceivedMessage>, Status>> {
        if self.may_be_silent()
            && let Some(drain_begins) = &mut self.drain_begins
            && drain_begins.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(self.end_early());
        }
        // Checked before each iteration, so that a client that never pauses cannot escape its time limit.
        if self.late.is_some()
            && let Poll::Ready(refusal) = self.poll_late(cx)
        {
            return Poll::Ready(Err(self.refuse(refusal)));
        }
        loop {
            let framed = self.cutter.next_message().map_err(|refusal| self.refuse(refusal))?;
            if let Some(framed) = framed {
                self.late = None;
                let (coding, limit) = (self.coding, self.limit);
                return Poll::Ready(Ok(Some(ReceivedMessage { framed, coding, limit })));
            }
            let frame = match poll_proceed(cx) {
                Poll::Ready(turn) => Pin::new(&mut self.body).poll_frame(cx).map(|frame| {
                    turn.made_progress();
                    frame
                }),
                Poll::Pending => Poll::Pending,
            };
            match frame {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    let counted = self.received_bytes.lock().add(chunk.len());
                    counted.map_err(|refusal| self.refuse(refusal))?;
                    self.cutter.push(chunk);
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(self.broken(&error)));
                }
                Poll::Ready(None) if self.cutter.is_inside() => {
                    return Poll::Ready(Err(self.refuse(Refusal::bad("call ended inside a message"))));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => {
                    let refusal = ready!(self.poll_late(cx));
                    return Poll::Ready(Err(self.refuse(refusal)));
                }
            }
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        if self.may_be_silent() {
            return Poll::Pending;
        }
        let limit = self.state.pipeline.admission.limits.timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(late.as_mut().poll(cx));
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
