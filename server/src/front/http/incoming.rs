//! An infer request as it came over HTTP, and its reply as it goes.

use super::coding::{self, Coding};
use crate::pipeline::Exchange;
use crate::request::admission::{Account, AccountRoom};
use crate::request::offload::offload_large;
use crate::request::refusal::Refusal;
use axum::body::HttpBody;
use bytes::Bytes;
use http::HeaderValue;
use hyper::body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec::IntoIter;
use tierlab_protocol::infer::{Data, InferReply, InferRequest, Piece};

/// A request as it came.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: Data,
    /// The length of the body's JSON part, where binary tensors follow.
    pub(super) json_len: Option<usize>,
    /// Time limit from the client's header.
    pub(super) timeout: Option<Duration>,
    /// Compression that the client accepts for the reply.
    pub(super) accepted: Coding,
}

/// A reply's body.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) body: Vec<Piece>,
    /// The length of the body's JSON part, where binary tensors follow.
    pub(super) json_len: Option<usize>,
    /// The value of `Content-Encoding`.
    pub(super) encoding: Option<HeaderValue>,
}

/// Cost per tensor byte of writing JSON, relative to a copy.
const JSON_WORK: usize = 8;
/// Cost per byte of compressing, relative to a copy.
pub(super) const COMPRESSION_WORK: usize = 16;

impl Exchange for Incoming {
    type Reply = Outgoing;
    type ReplyFormat = Coding;

    fn bytes(&self) -> usize {
        self.body.len()
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn reply_format(&self) -> Coding {
        self.accepted
    }

    fn decode(self, account: &mut Account) -> Result<InferRequest, Refusal> {
        let room = account.room();
        let decoded = InferRequest::decode_within(&self.body, self.json_len, &room);
        if let Some(refusal) = room.into_refusal() {
            return Err(refusal);
        }
        let request = decoded?;
        if self.json_len.is_none() {
            // Nothing of the body is left in the tensors.
            account.set(request.inputs.iter().map(|input| input.data.len()).sum());
        }
        Ok(request)
    }

    fn encode(reply: InferReply, binary: &[bool], accepted: Coding, room: &AccountRoom<'_>) -> Option<Outgoing> {
        let work = reply.outputs.iter().zip(binary).map(|(output, &binary)| {
            let weight = if binary { 1 } else { JSON_WORK };
            output.data.len().saturating_mul(weight)
        });
        let weight = if accepted == Coding::Identity {
            1
        } else {
            COMPRESSION_WORK
        };
        let work = work.sum::<usize>().saturating_mul(weight);
        offload_large(work, || {
            let encoded = reply.encode_within(binary, room)?;
            let (body, encoding) = coding::deflate(accepted, encoded.pieces, room)?;
            Some(Outgoing {
                body,
                json_len: encoded.json_len,
                encoding,
            })
        })
    }
}

/// A reply's body in several pieces, whose whole length is known before the first. The connection counts what was handed
/// out; the account counts what waits here.
pub(super) struct Pieces {
    rest: IntoIter<Piece>,
    /// Bytes in the rest.
    left: u64,
    account: Account,
}

impl Pieces {
    pub(super) fn new(pieces: Vec<Piece>, account: Account) -> Self {
        let left = pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
        Self {
            rest: pieces.into_iter(),
            left,
            account,
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.rest.next() else {
            return Poll::Ready(None);
        };
        let len = piece.bytes().len();
        self.left -= len as u64;
        if matches!(piece, Piece::Own(_)) {
            self.account.release(len);
        }
        Poll::Ready(Some(Ok(Frame::data(piece.into_bytes()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
