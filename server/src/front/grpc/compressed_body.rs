//! The body of replies that tonic compresses as they are asked for.
//!
//! In: a response. Out: the same, with its frames made off the async threads: to compress a large message takes long.

use super::compression::is_compressed;
use crate::request::offload::{LARGE_BYTES, offload_large};
use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// A body that is compressed.
pub(super) struct CompressedBody(Body);

impl CompressedBody {
    /// Takes the body of a response, where it is compressed.
    pub(super) fn of(response: http::Response<Body>) -> http::Response<Body> {
        if is_compressed(response.headers()) {
            response.map(|body| Body::new(Self(body)))
        } else {
            response
        }
    }
}

impl HttpBody for CompressedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // How large the message is, is not known here.
        offload_large(LARGE_BYTES, || Pin::new(&mut self.0).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
