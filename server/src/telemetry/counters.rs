//! Groups of counters, each handed to the one place that counts with it.

use prometheus::{Counter, IntCounter};

/// Counters that move by themselves: they are brought up to date before every scrape.
pub(crate) trait Settle: Send + Sync {
    /// Brings them up to date.
    fn settle(&self);
}

/// Counters of exported and lost spans.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone)]
pub(crate) struct SpanCounts {
    /// The collector has taken them.
    pub(crate) sent: IntCounter,
    /// Spans that could not be exported.
    pub(crate) failed: IntCounter,
    /// They found the queue full.
    pub(crate) dropped: IntCounter,
}

/// Time of one session's thread, by state.
pub(crate) struct SessionSeconds {
    pub(crate) compute: Counter,
    pub(crate) queue_wait: Counter,
    pub(crate) storage_wait: Counter,
    pub(crate) no_requests: Counter,
}
