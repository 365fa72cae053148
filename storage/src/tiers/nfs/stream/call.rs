//! A call and its reply: bytes to send, destination of the data, and the waiting caller. Knows nothing of streams or
//! procedures.

use super::moderation::REPLY_HEAD_BYTES;
use crate::tiers::nfs::rpc::{Call, CallError, Head, next_xid};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Replies up to this size are received whole before they are parsed.
pub(in crate::tiers::nfs) const SMALL_RECORD_BYTES: usize = 32 << 10;

/// A call, with the state that its retries share.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct Outgoing<'a> {
    pub(in crate::tiers::nfs) call: &'a Call,
    pub(in crate::tiers::nfs) head: &'a Head,
    /// Equal in every retry, so that a server can recognise them.
    pub(in crate::tiers::nfs) xid: u32,
    pub(in crate::tiers::nfs) deadline: Instant,
}

impl<'a> Outgoing<'a> {
    pub(in crate::tiers::nfs) fn new(call: &'a Call, head: &'a Head, deadline: Instant) -> Self {
        Self {
            call,
            head,
            xid: next_xid(),
            deadline,
        }
    }
}

/// Position of bulk data inside a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tiers::nfs) struct Bulk {
    pub(in crate::tiers::nfs) at: usize,
    pub(in crate::tiers::nfs) len: usize,
}

/// Destination of a reply's bulk data, filled straight from the socket.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct Landing {
    /// Finds the data from the first bytes of a result; `None` if there is none.
    pub(in crate::tiers::nfs) find: fn(&[u8]) -> Option<Bulk>,
    /// Maximum length of the data.
    pub(in crate::tiers::nfs) room: usize,
    /// Buffer to append to. If `None`, a buffer is allocated when the data arrives: waiting calls then hold no memory,
    /// and recently used memory is reused.
    pub(in crate::tiers::nfs) buffer: Option<BytesMut>,
}

impl Landing {
    /// The same for another attempt. The buffer went with the first.
    pub(in crate::tiers::nfs) fn again(&self) -> Self {
        Self { buffer: None, ..*self }
    }

    /// Buffer with room for data of this length; `None` if the data is longer than allowed.
    pub(in crate::tiers::nfs) fn into_buffer(self, len: usize) -> Option<BytesMut> {
        let buffer = self
            .buffer
            .unwrap_or_else(|| BytesMut::with_capacity(len.min(self.room)));
        (len <= self.room && len <= buffer.capacity() - buffer.len()).then_some(buffer)
    }
}

/// Result of a call, and its bytes on the wire.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct Reply {
    /// Result up to the bulk data, if that went to its landing.
    pub(in crate::tiers::nfs) body: Bytes,
    pub(in crate::tiers::nfs) landed: Option<BytesMut>,
    pub(in crate::tiers::nfs) wire_bytes: u64,
}

/// Permit for a call in flight.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct CallPermit {
    _call: OwnedSemaphorePermit,
    /// Data units of a large reply.
    data: Option<OwnedSemaphorePermit>,
}

impl CallPermit {
    pub(in crate::tiers::nfs) fn new(call: OwnedSemaphorePermit, data: Option<OwnedSemaphorePermit>) -> Self {
        Self { _call: call, data }
    }

    fn weight(&self) -> usize {
        1 + self.data.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// Slot on a connection, released when the reply has arrived or its caller went away.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct Claim {
    load: Arc<AtomicUsize>,
    permit: CallPermit,
}

impl Claim {
    pub(in crate::tiers::nfs) fn new(load: Arc<AtomicUsize>, permit: CallPermit) -> Self {
        load.fetch_add(permit.weight(), Ordering::Relaxed);
        Self { load, permit }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.load.fetch_sub(self.permit.weight(), Ordering::Relaxed);
    }
}

pub(in crate::tiers::nfs) type Answer = Result<Reply, CallError>;

/// A call in flight.
#[derive(Debug)]
pub(in crate::tiers::nfs) struct Waiter {
    pub(in crate::tiers::nfs) answer: oneshot::Sender<Answer>,
    pub(in crate::tiers::nfs) landing: Option<Landing>,
    pub(in crate::tiers::nfs) sent: Instant,
    pub(in crate::tiers::nfs) deadline: Instant,
    pub(in crate::tiers::nfs) _claim: Claim,
}

impl Waiter {
    /// Number of reply bytes certain to arrive together. Zero for large replies, which arrive in pieces and wake the
    /// receiver as they come.
    pub(in crate::tiers::nfs) fn expects(&self) -> usize {
        match &self.landing {
            Some(landing) if landing.room > SMALL_RECORD_BYTES => 0,
            Some(landing) => landing.room + REPLY_HEAD_BYTES,
            None => REPLY_HEAD_BYTES,
        }
    }
}
