//! Send time of a request: read once, at its first activity on the wire.

use crate::pacer::Clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Value before a request is sent.
const CLEAR: u64 = u64::MAX;

/// Send time of the request in flight on one connection. It is unset before the first request, while the connection is
/// opened.
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
    /// Begins a new request, on the step's clock.
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

    /// Returns the send time on the step's clock; `None` if it is unset.
    pub(super) fn sent_us(&self) -> Option<u64> {
        Some(self.sent_us.load(Ordering::Relaxed)).filter(|&us| us != CLEAR)
    }
}
