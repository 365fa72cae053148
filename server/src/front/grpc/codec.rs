//! Replies as they are on the wire: the pipeline writes them itself, so that its stages show what that costs.
//!
//! In: a reply's bytes. Out: the same, laid behind their frame's prefix. Nothing comes in this way: messages are read by
//! [`IncomingMessages`](super::incoming_messages::IncomingMessages).

use crate::request::admission::Account;
use crate::request::offload::offload_large;
use bytes::{BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

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
