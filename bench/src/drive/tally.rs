//! Results of callers. In: calls, one by one. Out: sums and histograms that can be added.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tierlab_protocol::via::ViaSet;
use tierlab_storage::ReadCost;

/// Longest latency in the histograms, in nanoseconds: 10 minutes.
const MAX_LATENCY_NS: u64 = 600_000_000_000;

/// Results of calls.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Latency in nanoseconds, from the start of a call, or in an open loop from its due time.
    pub(crate) latency_ns: Histogram<u64>,
    /// Send lag in nanoseconds, from the due time of a call to its start. Empty in a closed loop.
    pub(crate) lag_ns: Histogram<u64>,
    pub(crate) sums: Sums,
    pub(crate) via: ViaSet,
    /// Errors of the window's calls by kind, if errors are tolerated.
    pub(crate) faults: BTreeMap<&'static str, Faults>,
    /// Start of the first call.
    pub(super) first_start: Option<Instant>,
    /// End of the last call.
    pub(super) last_end: Option<Instant>,
    /// Caller's current second of the window, by number, and its calls so far.
    pub(super) second: (usize, Second),
}

/// Calls of one second.
#[derive(Debug, Clone)]
pub(crate) struct Second {
    pub(crate) bytes: u64,
    pub(crate) latency_ns: Histogram<u64>,
}

impl Default for Second {
    fn default() -> Self {
        Self {
            bytes: 0,
            latency_ns: histogram(2),
        }
    }
}

impl Second {
    pub(super) fn call(&mut self, ns: u128, bytes: usize) {
        self.bytes += bytes as u64;
        record(&mut self.latency_ns, ns);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        let _ = self.latency_ns.add(&other.latency_ns);
    }
}

fn histogram(digits: u8) -> Histogram<u64> {
    let mut histogram = Histogram::new(digits).expect("up to five digits are allowed");
    histogram.auto(true);
    histogram
}

/// Sums over calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    pub(crate) calls: u64,
    /// Calls that ended in the window, in an open loop also those due before it.
    pub(crate) ended: u64,
    /// Bytes of these calls.
    pub(crate) ended_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) asked_bytes: u64,
    /// Bytes moved, as reported by the tier; 0 for kernel calls.
    pub(crate) wire_bytes: u64,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    /// Calls of an open loop unfinished at the end of its drain. Their age counts in the latencies.
    pub(crate) unfinished: u64,
    #[serde(skip)]
    pub(crate) cache_hits: u64,
    #[serde(skip)]
    pub(crate) cache_misses: u64,
    #[serde(skip)]
    pub(crate) queue: Duration,
    #[serde(skip)]
    pub(crate) device: Duration,
    #[serde(skip)]
    pub(crate) copy: Duration,
}

/// Errors of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) calls: u64,
    /// Sum of the times from the start of each call to its error.
    pub(crate) took: Duration,
    /// Text of the first error.
    pub(crate) first_error: String,
}

impl Faults {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.took += other.took;
        if self.first_error.is_empty() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            latency_ns: histogram(3),
            lag_ns: histogram(3),
            sums: Sums::default(),
            via: ViaSet::default(),
            faults: BTreeMap::new(),
            first_start: None,
            last_end: None,
            second: Default::default(),
        }
    }
}

impl Tally {
    /// Adds a call that took `ns` nanoseconds.
    pub(crate) fn call(&mut self, ns: u128, bytes: usize, is_write: bool, cost: &ReadCost) {
        record(&mut self.latency_ns, ns);
        self.via = self.via.union(cost.via);
        let sums = &mut self.sums;
        sums.calls += 1;
        sums.writes += u64::from(is_write);
        sums.asked_bytes += bytes as u64;
        sums.wire_bytes += cost.wire_bytes;
        sums.requests += u64::from(cost.requests);
        sums.retries += u64::from(cost.retries);
        sums.cache_hits += u64::from(cost.cache_hits);
        sums.cache_misses += u64::from(cost.cache_misses);
        sums.queue += cost.queue;
        sums.device += cost.device;
        sums.copy += cost.copy;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let _ = self.latency_ns.add(&other.latency_ns);
        let _ = self.lag_ns.add(&other.lag_ns);
        self.sums.add(&other.sums);
        self.via = self.via.union(other.via);
        self.first_start = self.first_start.into_iter().chain(other.first_start).min();
        self.last_end = self.last_end.max(other.last_end);
        for (kind, faults) in &other.faults {
            self.faults.entry(*kind).or_default().add(faults);
        }
    }
}

pub(super) fn record(histogram: &mut Histogram<u64>, ns: u128) {
    let ns = u64::try_from(ns).unwrap_or(MAX_LATENCY_NS);
    let _ = histogram.record(ns.clamp(1, MAX_LATENCY_NS));
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.ended += other.ended;
        self.ended_bytes += other.ended_bytes;
        self.writes += other.writes;
        self.asked_bytes += other.asked_bytes;
        self.wire_bytes += other.wire_bytes;
        self.requests += other.requests;
        self.retries += other.retries;
        self.unfinished += other.unfinished;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.queue += other.queue;
        self.device += other.device;
        self.copy += other.copy;
    }
}
