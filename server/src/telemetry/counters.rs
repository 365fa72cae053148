//! Groups of counters, each handed to the one place that counts with it.

use prometheus::{Counter, IntCounter};

/// Counters that move by themselves: they are brought up to date before every scrape.
pub(crate) trait Settle: Send + Sync {
    /// Brings them up to date.
    fn settle(&self);
}

/// What becomes of spans.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone)]
pub(crate) struct SpanCounts {
    /// The collector has taken them.
    pub(crate) sent: IntCounter,
    /// It has not.
    pub(crate) failed: IntCounter,
    /// They found the queue full.
    pub(crate) dropped: IntCounter,
}

/// Where the time of one session's thread goes.
pub(crate) struct SessionSeconds {
    pub(crate) compute: Counter,
    pub(crate) queue_wait: Counter,
    pub(crate) storage_wait: Counter,
    pub(crate) no_requests: Counter,
}
