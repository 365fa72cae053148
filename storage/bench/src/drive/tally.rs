//! Figures of the callers. In: calls, one by one. Out: sums and histograms that can be added.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_protocol::via::ViaSet;
use tierlab_storage::ReadCost;

/// Longest latency in the histograms, in nanoseconds: 10 minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// Sums over calls.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// Latency in nanoseconds: from the start of a call, or in an open loop from its due time.
    pub(crate) latency_ns: Histogram<u64>,
    /// Lateness in nanoseconds: from the due time of a call to its start. Empty in a closed loop.
    pub(crate) late_ns: Histogram<u64>,
    pub(crate) calls: u64,
    /// Calls that ended in the window; in an open loop including calls due before it.
    pub(crate) ended: u64,
    pub(crate) writes: u64,
    pub(crate) asked_bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    /// Calls of an open loop that were unfinished at the drain limit; the latencies hold their ages.
    pub(crate) unfinished: u64,
    pub(crate) via: ViaSet,
    /// Failed calls of the window by kind of error, if the repeat tolerates errors.
    pub(crate) faults: BTreeMap<&'static str, Faults>,
}

/// Errors of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) calls: u64,
    /// Total time from the start of these calls to their errors.
    pub(crate) took: Duration,
    /// Text of the first error.
    pub(crate) words: String,
}

impl Faults {
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.took += other.took;
        if self.words.is_empty() {
            self.words.clone_from(&other.words);
        }
    }
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || {
            let mut histogram = Histogram::new(3).expect("three digits are allowed");
            histogram.auto(true);
            histogram
        };
        Self {
            latency_ns: histogram(),
            late_ns: histogram(),
            calls: 0,
            ended: 0,
            writes: 0,
            asked_bytes: 0,
            wire_bytes: 0,
            requests: 0,
            retries: 0,
            unfinished: 0,
            via: ViaSet::default(),
            faults: BTreeMap::new(),
        }
    }
}

impl Tally {
    /// Counts a call with its latency.
    pub(crate) fn call(&mut self, ns: u128, bytes: usize, write: bool, cost: &ReadCost) {
        self.latency(ns);
        self.calls += 1;
        self.writes += u64::from(write);
        self.asked_bytes += bytes as u64;
        self.wire_bytes += cost.wire_bytes;
        self.requests += u64::from(cost.requests);
        self.retries += u64::from(cost.retries);
        self.via = self.via.union(cost.via);
    }

    pub(crate) fn latency(&mut self, ns: u128) {
        let _ = self
            .latency_ns
            .record(u64::try_from(ns).unwrap_or(LONGEST_NS).clamp(1, LONGEST_NS));
    }

    pub(crate) fn late(&mut self, ns: u128) {
        let _ = self
            .late_ns
            .record(u64::try_from(ns).unwrap_or(LONGEST_NS).clamp(1, LONGEST_NS));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let _ = self.latency_ns.add(&other.latency_ns);
        let _ = self.late_ns.add(&other.late_ns);
        self.calls += other.calls;
        self.ended += other.ended;
        self.writes += other.writes;
        self.asked_bytes += other.asked_bytes;
        self.wire_bytes += other.wire_bytes;
        self.requests += other.requests;
        self.retries += other.retries;
        self.unfinished += other.unfinished;
        self.via = self.via.union(other.via);
        for (kind, faults) in &other.faults {
            self.faults.entry(*kind).or_default().add(faults);
        }
    }
}
