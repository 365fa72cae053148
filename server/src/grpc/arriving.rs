//! The body of an infer call while it arrives: bounded in size, time and memory, like a body over HTTP.
//!
//! In: frames. Out: the same frames, or a status that ends the call; each refusal is counted. The bytes stay on the
//! account that is shared with the call until it is done.

use super::Server;
use crate::admission::Account;
use crate::refusal::{Reason, Refusal};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
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

/// A body that is bounded.
pub(super) struct Arriving {
    body: Body,
    state: Server,
    arrived: Arrived,
    /// For all of the body; none for a stream of requests, which may last.
    limit: Option<Duration>,
    /// Set when the body has to be waited for.
    late: Option<Pin<Box<Sleep>>>,
    begun: bool,
}

impl Arriving {
    pub(super) fn new(body: Body, state: &Server, arrived: &Arrived, limit: Option<Duration>) -> Self {
        Self {
            body,
            state: Arc::clone(state),
            arrived: arrived.clone(),
            limit,
            late: None,
            begun: false,
        }
    }

    fn refuse(&self, refusal: Refusal) -> Status {
        self.state.metrics().count_refusal("", None, &refusal);
        refusal.into()
    }

    /// Checks a chunk of the body.
    fn check(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        if !self.begun && self.limit.is_some() {
            let limit = self.state.pipeline.admission.limits.max_body_bytes;
            if let Some((prefix, _)) = chunk.split_first_chunk::<PREFIX_BYTES>() {
                let len = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                if len as usize > limit {
                    let what = format!("the message has {len} bytes, the most taken is {limit}");
                    return Err(Refusal::new(Reason::TooLarge, what));
                }
            }
        }
        self.begun = true;
        self.arrived.add(chunk.len())
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
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
