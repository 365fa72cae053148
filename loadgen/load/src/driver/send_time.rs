//! When a request was sent: read once, by whatever does the first thing for it on the wire.

use crate::pacer::Clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// No request was sent yet.
const CLEAR: u64 = u64::MAX;

/// The send time of the request under way on one connection. Before the first request, while a connection is only made, there is none.
#[derive(Debug)]
pub(super) struct SendTime {
    clock: OnceLock<Clock>,
    sent_us: AtomicU64,
}

impl Default for SendTime {
    fn default() -> Self {
        Self {
            clock: OnceLock::new(),
            sent_us: AtomicU64::new(CLEAR),
        }
    }
}

impl SendTime {
    /// A new request begins, on the step's clock.
    pub(super) fn begin(&self, clock: Clock) {
        self.clock.get_or_init(|| clock);
        self.sent_us.store(CLEAR, Ordering::Relaxed);
    }

    /// Sets the send time to now, unless it is set.
    pub(super) fn set(&self) {
        if let Some(clock) = self.clock.get()
            && !self.is_set()
        {
            self.sent_us.store(clock.now_us(), Ordering::Relaxed);
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
