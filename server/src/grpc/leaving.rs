//! The body of replies while it leaves: what a slow client has not taken yet is on the account.
//!
//! In: frames of encoded messages. Out: the same frames, counted until they are written. A stream is not asked for its next
//! frame before the client has taken enough, so that what waits behind it is counted as replies.

use crate::admission::Admission;
use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// A body that is counted.
pub(super) struct Leaving {
    body: Body,
    admission: Arc<Admission>,
}

impl Leaving {
    /// Counts the body of a response.
    pub(super) fn count(response: http::Response<Body>, admission: &Arc<Admission>) -> http::Response<Body> {
        response.map(|body| {
            Body::new(Self {
                body,
                admission: Arc::clone(admission),
            })
        })
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        frame.map_ok(|frame| frame.map_data(|data| self.admission.open_account().hold(data)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
