//! One call and its reply: what is sent, where its data lands, and who waits. Knows nothing of streams or procedures.

use super::moderation::REPLY_HEAD_BYTES;
use super::rpc::{Call, CallError, Head, next_xid};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Replies up to this are taken whole before they are looked at.
pub(super) const SMALL_RECORD_BYTES: usize = 32 << 10;

/// A call with what repeats of it share.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) call: &'a Call,
    pub(super) head: &'a Head,
    /// The same in every repeat, so that a server can tell.
    pub(super) xid: u32,
    pub(super) deadline: Instant,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(call: &'a Call, head: &'a Head, deadline: Instant) -> Self {
        Self {
            call,
            head,
            xid: next_xid(),
            deadline,
        }
    }
}

/// Bulk data inside a result: where it begins, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bulk {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// Where the bulk data of a reply goes, straight from the socket.
#[derive(Debug)]
pub(super) struct Landing {
    /// Finds the data from the first bytes of a result; `None` where there is none.
    pub(super) find: fn(&[u8]) -> Option<Bulk>,
    /// The longest data that may come.
    pub(super) room: usize,
    /// What it is appended to. Without one, a buffer is made when the data arrives: calls that only wait hold none, and
    /// memory that was just used is used again.
    pub(super) buffer: Option<BytesMut>,
}

impl Landing {
    /// The same for another attempt. The buffer went with the first.
    pub(super) fn again(&self) -> Self {
        Self { buffer: None, ..*self }
    }

    /// The buffer, with room for data of this length; `None` where it is longer than it may be.
    pub(super) fn into_buffer(self, len: usize) -> Option<BytesMut> {
        let buffer = self
            .buffer
            .unwrap_or_else(|| BytesMut::with_capacity(len.min(self.room)));
        (len <= self.room && len <= buffer.capacity() - buffer.len()).then_some(buffer)
    }
}

/// A result, and what came over the wire for it.
#[derive(Debug)]
pub(super) struct Reply {
    /// Up to the bulk data, where that has landed.
    pub(super) body: Bytes,
    pub(super) landed: Option<BytesMut>,
    pub(super) wire_bytes: u64,
}

/// Room for a call among those under way.
#[derive(Debug)]
pub(super) struct CallPermit {
    _call: OwnedSemaphorePermit,
    /// Units of data that its reply will bring, where that is much.
    data: Option<OwnedSemaphorePermit>,
}

impl CallPermit {
    pub(super) fn new(call: OwnedSemaphorePermit, data: Option<OwnedSemaphorePermit>) -> Self {
        Self { _call: call, data }
    }

    fn weight(&self) -> usize {
        1 + self.data.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// A place on a connection, given back when the reply is there or nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Claim {
    load: Arc<AtomicUsize>,
    permit: CallPermit,
}

impl Claim {
    pub(super) fn new(load: Arc<AtomicUsize>, permit: CallPermit) -> Self {
        load.fetch_add(permit.weight(), Ordering::Relaxed);
        Self { load, permit }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.load.fetch_sub(self.permit.weight(), Ordering::Relaxed);
    }
}

pub(super) type Answer = Result<Reply, CallError>;

/// A call that is under way.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) landing: Option<Landing>,
    pub(super) sent: Instant,
    pub(super) deadline: Instant,
    pub(super) _claim: Claim,
}

impl Waiter {
    /// What its reply will bring, as far as that is for sure: a large one comes in pieces, and wakes as it comes.
    pub(super) fn expects(&self) -> usize {
        match &self.landing {
            Some(landing) if landing.room > SMALL_RECORD_BYTES => 0,
            Some(landing) => landing.room + REPLY_HEAD_BYTES,
            None => REPLY_HEAD_BYTES,
        }
    }
}
