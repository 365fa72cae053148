//! When a request was sent: read once, by whatever does the first thing for it on the wire.

use crate::pacer::Clock;
use std::sync::atomic::{AtomicU64, Ordering};

/// No request was sent yet.
const CLEAR: u64 = u64::MAX;

/// The send time of the request under way on one connection.
#[derive(Debug)]
pub(super) struct SendTime {
    clock: Clock,
    sent_us: AtomicU64,
}

impl SendTime {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            sent_us: AtomicU64::new(CLEAR),
        }
    }

    /// A new request begins.
    pub(super) fn clear(&self) {
        self.sent_us.store(CLEAR, Ordering::Relaxed);
    }

    /// It is sent now, unless it was already.
    pub(super) fn set(&self) {
        if !self.is_set() {
            self.sent_us.store(self.clock.now_us(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_set(&self) -> bool {
        self.sent_us().is_some()
    }

    /// When it was sent, on the step's clock; `None` while it is not.
    pub(super) fn sent_us(&self) -> Option<u64> {
        Some(self.sent_us.load(Ordering::Relaxed)).filter(|&us| us != CLEAR)
    }
}
