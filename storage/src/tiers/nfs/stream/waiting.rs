//! Calls that wait for their replies. In: calls, transaction ids of replies, and the end of the connection. Out: the
//! caller to answer. Knows nothing of streams.

use super::call::Waiter;
use crate::tiers::nfs::rpc::CallError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Transaction ids are consecutive numbers of this process: multiplying spreads them well enough.
#[derive(Debug, Default)]
struct XidHasher(u64);

impl Hasher for XidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, xid: u32) {
        self.0 = (self.0 ^ u64::from(xid)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

#[derive(Debug, Default)]
struct Waiters {
    by_xid: HashMap<u32, Waiter, BuildHasherDefault<XidHasher>>,
    /// Sum of the bytes expected by all waiters.
    expected_bytes: usize,
    broken: Option<CallError>,
}

impl Waiters {
    /// Adds a call; returns true if it is the only one.
    fn insert(&mut self, xid: u32, waiter: Waiter) -> bool {
        self.expected_bytes += waiter.expects();
        self.by_xid.insert(xid, waiter);
        self.by_xid.len() == 1
    }

    fn remove(&mut self, xid: u32) -> Option<Waiter> {
        let waiter = self.by_xid.remove(&xid)?;
        self.expected_bytes -= waiter.expects();
        Some(waiter)
    }

    fn remove_late(&mut self, now: Instant) -> Vec<Waiter> {
        let late = self.by_xid.extract_if(|_, waiter| waiter.deadline <= now);
        let late: Vec<Waiter> = late.map(|(_, waiter)| waiter).collect();
        self.expected_bytes -= late.iter().map(Waiter::expects).sum::<usize>();
        late
    }
}

/// Waiting calls of a connection, until it breaks.
#[derive(Debug, Default)]
pub(in crate::tiers::nfs) struct Waiting(Mutex<Waiters>);

impl Waiting {
    // Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Waiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call; returns true if it is the only one. The error says why the connection is broken.
    pub(in crate::tiers::nfs) fn add(&self, xid: u32, waiter: Waiter) -> Result<bool, CallError> {
        let mut waiters = self.lock();
        match &waiters.broken {
            Some(error) => Err(error.clone()),
            None => Ok(waiters.insert(xid, waiter)),
        }
    }

    /// Takes the caller of a reply; `None` if the call has ended.
    pub(in crate::tiers::nfs) fn take(&self, xid: u32) -> Option<Waiter> {
        self.lock().remove(xid)
    }

    /// The bytes that small replies will bring.
    pub(in crate::tiers::nfs) fn expected_bytes(&self) -> usize {
        self.lock().expected_bytes
    }

    pub(in crate::tiers::nfs) fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Ends the wait of calls whose deadline has passed; returns since when the oldest of the others waits.
    pub(in crate::tiers::nfs) fn expire(&self, now: Instant) -> Option<Instant> {
        let mut waiters = self.lock();
        for waiter in waiters.remove_late(now) {
            // Sending fails only if the caller went away.
            let _ = waiter.answer.send(Err(CallError::Late));
        }
        waiters.by_xid.values().map(|waiter| waiter.sent).min()
    }

    /// Fails all waiting and all later calls.
    pub(in crate::tiers::nfs) fn fail(&self, error: &CallError) {
        let ended = {
            let mut waiters = self.lock();
            waiters.broken.get_or_insert_with(|| error.clone());
            waiters.expected_bytes = 0;
            std::mem::take(&mut waiters.by_xid)
        };
        for waiter in ended.into_values() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }
}
