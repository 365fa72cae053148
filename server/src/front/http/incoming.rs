//! An infer request as it came over HTTP, and its reply as it goes.

use super::coding::{self, Coding};
use crate::pipeline::Exchange;
use crate::request::admission::{Account, AccountRoom};
use crate::request::offload::offload_large;
use crate::request::refusal::Refusal;
use http::HeaderValue;
use std::time::Duration;
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

/// Cost per tensor byte of writing JSON or compressing, relative to a copy.
const JSON_WORK: usize = 8;

const COMPRESSION_WORK: usize = 16;

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
