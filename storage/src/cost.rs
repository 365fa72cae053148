//! Cost of a read: its times, and the requests made of the tier.

use std::time::Duration;
use tierlab_protocol::via::ViaSet;

/// Cost of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// The paths taken.
    pub via: ViaSet,
    /// Waiting for a slot, a connection or the engine: the longest of the parts.
    pub queue: Duration,
    /// With the device or the remote side: the longest of the parts.
    pub device: Duration,
    /// Copies on this side after arrival: the sum.
    pub copy: Duration,
    /// Look-ups in a cache: the sum. Zero without a cache.
    pub cache: Duration,
    /// Bytes moved, over-read and headers of ranges included.
    pub wire_bytes: u64,
    /// Requests made of the tier's device or server (SQEs, GETs, READs). A stage's reads of its own folder are
    /// excluded, also from the bytes, retries and hedges.
    pub requests: u32,
    /// Retries after a failure among them.
    pub retries: u32,
    /// Hedged requests among them, sent a second time because the first was slow to be answered.
    pub hedges: u32,
    /// Blocks that a cache had.
    pub cache_hits: u32,
    /// Blocks that a cache had not.
    pub cache_misses: u32,
}

impl ReadCost {
    /// Adds a read that ran at the same time: waits overlap, counts add.
    pub fn merge(&mut self, other: &Self) {
        self.via = self.via.union(other.via);
        self.queue = self.queue.max(other.queue);
        self.device = self.device.max(other.device);
        self.copy += other.copy;
        self.cache += other.cache;
        self.wire_bytes += other.wire_bytes;
        self.requests += other.requests;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
    }
}
