//! Counts of a stage: its own, and the metrics shared by stages of the same kind of tier.

use crate::wrappers::metrics::StagedMetrics;
use prometheus::{IntCounter, IntGauge};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Something that happens, counted twice.
#[derive(Debug)]
pub(super) struct Count {
    own: AtomicU64,
    shared: IntCounter,
}

impl Count {
    fn new(shared: IntCounter) -> Self {
        Self {
            own: AtomicU64::new(0),
            shared,
        }
    }

    /// Counts, and returns this stage's own count.
    pub(super) fn add(&self, more: usize) -> u64 {
        self.shared.inc_by(more as u64);
        self.own.fetch_add(more as u64, Ordering::Relaxed) + more as u64
    }

    pub(super) fn so_far(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }
}

/// Counts of a stage.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) hits: Count,
    pub(super) misses: Count,
    pub(super) neighbours: Count,
    pub(super) staged: Count,
    pub(super) evicted: Count,
    pub(super) broken: Count,
    pub(super) skipped: Count,
    pub(super) failures: Count,
    pub(super) last_failure: Mutex<Option<String>>,
    /// Bytes of the blocks in the queue.
    pub(super) pending: AtomicU64,
    pub(super) stopped: AtomicBool,
    bytes: IntGauge,
    capacity: (IntGauge, i64),
    /// Contribution of this stage to the gauge of bytes.
    told_bytes: AtomicU64,
}

impl Tally {
    pub(super) fn new(metrics: StagedMetrics, capacity_bytes: u64) -> Self {
        metrics.capacity_bytes.add(capacity_bytes.cast_signed());
        Self {
            hits: Count::new(metrics.hits),
            misses: Count::new(metrics.misses),
            neighbours: Count::new(metrics.neighbours),
            staged: Count::new(metrics.written),
            evicted: Count::new(metrics.evicted),
            broken: Count::new(metrics.torn),
            skipped: Count::new(metrics.skipped),
            failures: Count::new(metrics.failures),
            last_failure: Mutex::default(),
            pending: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            bytes: metrics.bytes,
            capacity: (metrics.capacity_bytes, capacity_bytes.cast_signed()),
            told_bytes: AtomicU64::new(0),
        }
    }

    /// A write failed.
    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        let failures = self.failures.add(1);
        let text = format!("{what}: {error}");
        // The first, and then ever more rarely: a full disk fails thousands of times.
        if failures.is_power_of_two() {
            tracing::warn!(failures, "staging failed, reads go to the tier: {text}");
        }
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Brings the gauge up to date.
    pub(super) fn tell_bytes(&self, bytes: u64) {
        let told = self.told_bytes.swap(bytes, Ordering::Relaxed);
        self.bytes.add(bytes.cast_signed() - told.cast_signed());
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell_bytes(0);
        self.capacity.0.sub(self.capacity.1);
    }
}
