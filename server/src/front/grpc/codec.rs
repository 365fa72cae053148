//! Replies as they are on the wire: the pipeline writes them itself, so that its stages show what that costs.
//!
//! In: a reply's bytes. Out: the same, laid behind their frame's prefix. Nothing comes in this way: messages are read by
//! [`IncomingMessages`](super::incoming_messages::IncomingMessages).

use crate::request::admission::Account;
use crate::request::offload::{LARGE_BYTES, offload_large};
use axum::body::HttpBody;
use bytes::{BufMut, Bytes};
use http::HeaderMap;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::Grpc;

/// Hands replies through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawCodec;

/// A reply, on its account until it is laid into the body.
pub(super) struct EncodedReply {
    bytes: Bytes,
    _account: Account,
}

impl EncodedReply {
    pub(super) fn new(bytes: Bytes, account: Account) -> Self {
        Self {
            bytes,
            _account: account,
        }
    }
}

impl Codec for RawCodec {
    type Encode = EncodedReply;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = EncodedReply;
    type Error = Status;

    fn encode(&mut self, reply: EncodedReply, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        offload_large(reply.bytes.len(), || {
            out.reserve(reply.bytes.len());
            out.put_slice(&reply.bytes);
        });
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(None)
    }
}

/// A call's wire format: both compressions are read, and used for replies where the request used one.
pub(super) fn wire<C: Codec>(codec: C, headers: &HeaderMap) -> Grpc<C> {
    let grpc = Grpc::new(codec)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    // Most clients say that they accept every compression; only those that compress want to pay for it.
    if is_compressed(headers) {
        grpc.send_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Deflate)
    } else {
        grpc
    }
}

pub(super) fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// A body that tonic compresses as it is asked for. Its frames are made off the async threads: to compress a large message
/// takes long.
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
        // The size of the message is not known here.
        offload_large(LARGE_BYTES, || Pin::new(&mut self.0).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
