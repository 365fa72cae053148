//! Messages as they are on the wire: the pipeline reads and writes them itself, so that its stages show what that costs.
//!
//! In: a framed message. Out: its bytes, without a copy; and the other way round, with one.

use crate::admission::Account;
use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Hands bytes through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Raw;

/// A reply, on its account until it is laid into the body.
pub(super) struct Reply {
    bytes: Bytes,
    _account: Account,
}

impl Reply {
    pub(super) fn new(message: &impl Message, mut account: Account) -> Self {
        let bytes = Bytes::from(message.encode_to_vec());
        account.set(bytes.len());
        Self {
            bytes,
            _account: account,
        }
    }
}

impl Codec for Raw {
    type Encode = Reply;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Reply;
    type Error = Status;

    fn encode(&mut self, reply: Reply, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(reply.bytes.len());
        out.put_slice(&reply.bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, framed: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(framed.copy_to_bytes(framed.remaining())))
    }
}
