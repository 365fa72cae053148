//! Waiting calls and their replies. In: calls, transaction ids of replies, and the end of the connection. Out: the
//! caller to answer. Knows nothing of streams.

use super::moderation::REPLY_HEAD_BYTES;
use super::rpc::{Call, CallError, Head, next_xid};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

#[derive(Debug, Default)]
struct Waiters {
    by_xid: HashMap<u32, Waiter>,
    /// Sum of the bytes expected by all waiters.
    expected_bytes: usize,
    broken: Option<CallError>,
}

/// Waiting calls of a connection, until it breaks.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Waiters>);

impl Waiting {
    /// Adds a call; returns true if it is the only one. The error says why the connection is broken.
    pub(super) fn add(&self, xid: u32, waiter: Waiter) -> Result<bool, CallError> {
        let mut waiters = self.0.lock();
        if let Some(error) = &waiters.broken {
            return Err(error.clone());
        }
        waiters.expected_bytes += waiter.expects();
        waiters.by_xid.insert(xid, waiter);
        Ok(waiters.by_xid.len() == 1)
    }

    /// Removes the caller of a reply; `None` if the call has ended.
    pub(super) fn take(&self, xid: u32) -> Option<Waiter> {
        let mut waiters = self.0.lock();
        let waiter = waiters.by_xid.remove(&xid)?;
        waiters.expected_bytes -= waiter.expects();
        Some(waiter)
    }

    /// Number of bytes that small replies will bring.
    pub(super) fn expected_bytes(&self) -> usize {
        self.0.lock().expected_bytes
    }

    pub(super) fn is_broken(&self) -> bool {
        self.0.lock().broken.is_some()
    }

    /// Ends calls whose deadline has passed. Returns the time since when the oldest remaining call waits.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut guard = self.0.lock();
        let waiters = &mut *guard;
        for (_, waiter) in waiters.by_xid.extract_if(|_, waiter| waiter.deadline <= now) {
            waiters.expected_bytes -= waiter.expects();
            // Sending fails only if the caller went away.
            let _ = waiter.answer.send(Err(CallError::Late));
        }
        waiters.by_xid.values().map(|waiter| waiter.sent).min()
    }

    /// Fails all waiting and all later calls.
    pub(super) fn fail(&self, error: &CallError) {
        let ended = {
            let mut waiters = self.0.lock();
            waiters.broken.get_or_insert_with(|| error.clone());
            waiters.expected_bytes = 0;
            std::mem::take(&mut waiters.by_xid)
        };
        for waiter in ended.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}

/// Replies up to this size are received whole before they are parsed.
pub(super) const SMALL_RECORD_BYTES: usize = 32 << 10;

/// A call, with the state that its retries share.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) call: &'a Call,
    pub(super) head: &'a Head,
    /// Equal in every retry, so that the server recognises it.
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

/// Position of bulk data inside a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bulk {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// Destination of a reply's bulk data, filled straight from the socket.
#[derive(Debug)]
pub(super) struct Landing {
    /// Finds the data from the first bytes of a result; `None` if there is none.
    pub(super) find: fn(&[u8]) -> Option<Bulk>,
    /// Maximum length of the data.
    pub(super) room: usize,
    /// Buffer to append to. If `None`, a buffer is allocated when the data arrives: waiting calls then hold no memory,
    /// and recently used memory is reused.
    pub(super) buffer: Option<BytesMut>,
}

impl Landing {
    /// Returns a landing for another attempt. The first attempt took the buffer.
    pub(super) fn again(&self) -> Self {
        Self { buffer: None, ..*self }
    }

    /// Buffer with room for data of this length; `None` if the data is longer than allowed.
    pub(super) fn into_buffer(self, len: usize) -> Option<BytesMut> {
        let new = || BytesMut::with_capacity(len.min(self.room));
        let buffer = self.buffer.unwrap_or_else(new);
        (len <= self.room && len <= buffer.capacity() - buffer.len()).then_some(buffer)
    }
}

/// Result of a call, and its bytes on the wire.
#[derive(Debug)]
pub(super) struct Reply {
    /// Result up to the bulk data if that was received separately, else the whole result.
    pub(super) body: Bytes,
    pub(super) landed: Option<BytesMut>,
    pub(super) wire_bytes: u64,
}

/// Permit for a call in flight.
#[derive(Debug)]
pub(super) struct CallPermit {
    pub(super) _call: OwnedSemaphorePermit,
    /// Data units of a large reply.
    pub(super) data: Option<OwnedSemaphorePermit>,
}

impl CallPermit {
    fn weight(&self) -> usize {
        1 + self.data.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// Slot on a connection, released when the reply has arrived or its caller went away.
#[derive(Debug)]
pub(super) struct LoadClaim {
    load: Arc<AtomicUsize>,
    permit: CallPermit,
}

impl LoadClaim {
    pub(super) fn new(load: Arc<AtomicUsize>, permit: CallPermit) -> Self {
        load.fetch_add(permit.weight(), Ordering::Relaxed);
        Self { load, permit }
    }
}

impl Drop for LoadClaim {
    fn drop(&mut self) {
        self.load.fetch_sub(self.permit.weight(), Ordering::Relaxed);
    }
}

pub(super) type Answer = Result<Reply, CallError>;

/// A call in flight.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) landing: Option<Landing>,
    pub(super) sent: Instant,
    pub(super) deadline: Instant,
    pub(super) _claim: LoadClaim,
}

impl Waiter {
    /// Number of reply bytes certain to arrive together. Zero for large replies, which arrive in pieces and wake the
    /// receiver as they come.
    pub(super) fn expects(&self) -> usize {
        match &self.landing {
            Some(landing) if landing.room > SMALL_RECORD_BYTES => 0,
            Some(landing) => landing.room + REPLY_HEAD_BYTES,
            None => REPLY_HEAD_BYTES,
        }
    }
}
