//! Telemetry of the server: metrics, spans and the log.

pub(crate) mod config;
pub mod log;
pub(crate) mod metrics;
pub(crate) mod model_stats;
pub(crate) mod trace;

pub(crate) use metrics::{Metrics, ModelMetrics};
use prometheus::Counter;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use strum::IntoStaticStr;

/// Time of one session's thread, by state.
pub(crate) struct SessionSeconds {
    pub(crate) compute: Counter,
    pub(crate) queue_wait: Counter,
    pub(crate) storage_wait: Counter,
    pub(crate) no_requests: Counter,
}

static ABANDONED_SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// Session of an abandoned load whose thread has not ended: ONNX Runtime cannot be interrupted while it builds. Counted
/// in this process until it is dropped.
#[derive(Debug)]
pub(crate) struct AbandonedSession(());

impl AbandonedSession {
    pub(crate) fn new() -> Self {
        ABANDONED_SESSIONS.fetch_add(1, Relaxed);
        Self(())
    }

    /// Number of abandoned sessions in this process.
    pub(crate) fn count() -> usize {
        ABANDONED_SESSIONS.load(Relaxed)
    }
}

impl Drop for AbandonedSession {
    fn drop(&mut self) {
        ABANDONED_SESSIONS.fetch_sub(1, Relaxed);
    }
}

/// Mode of a request: real-time requests infer one row, batch requests several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(crate) enum Mode {
    Realtime,
    Batch,
}

impl Mode {
    pub(crate) const fn of_rows(rows: usize) -> Self {
        if rows == 1 { Self::Realtime } else { Self::Batch }
    }
}

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(crate) enum Front {
    Http,
    Grpc,
}

impl Front {
    const ALL: [Self; 2] = [Self::Http, Self::Grpc];
}

/// Point where a request waits and its client may cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(crate) enum WaitPoint {
    /// Its body is arriving.
    Body,
    /// Its rows are being read.
    Tier,
    /// Queued, or in a run that continues without it.
    Batch,
}
