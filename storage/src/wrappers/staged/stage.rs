//! State shared by a stage's calls, fetches, reads and writing thread: staged blocks, counts, and tasks.

use super::journal::Header;
use super::ledger::Ledger;
use super::neighbours::{Claim, Neighbours};
use crate::metrics::StagedMetrics;
use crate::ranges;
use crate::tiers::nvme::NvmeTier;
use crate::unreported::UnreportedCost;
use crate::wrappers::Fetched;
use crate::wrappers::single_flight::{Lead, SingleFlight};
use crate::{Object, Tier};
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// State shared by the tier's calls and its fetches.
pub(super) struct Stage {
    pub(super) inner: Arc<dyn Tier>,
    pub(super) local: NvmeTier,
    /// Other processes that stage in the same root; `None` if the root is not shared.
    pub(super) neighbours: Option<Arc<Neighbours>>,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) tally: Arc<Tally>,
    pub(super) flights: Arc<SingleFlight<Fetched>>,
    /// Cost of fetches whose caller went away.
    pub(super) unreported: UnreportedCost,
    pub(super) jobs: Sender<WriterTask>,
    pub(super) origin: String,
    pub(super) block_bytes: u64,
}

impl Stage {
    /// Blocks that cover the ranges, in order, without duplicates.
    pub(super) fn blocks_of(&self, ranges: &[Range<u64>]) -> Vec<u64> {
        let blocks = ranges.iter().flat_map(|range| ranges::blocks(range, self.block_bytes));
        let mut blocks: Vec<u64> = blocks.collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    pub(super) fn header(&self, object: &Object) -> Header {
        Header {
            origin: self.origin.clone(),
            path: object.path.as_str().to_owned(),
            version: object.version.clone(),
            size: object.size,
            block_bytes: self.block_bytes,
        }
    }

    pub(super) fn extent(&self, object: &Object, block: u64) -> Range<u64> {
        ranges::block(block, self.block_bytes, object.size)
    }
}

/// Maximum bytes waiting to be written; a single read may exceed it.
pub(super) const PENDING_BYTES: u64 = 64 << 20;

/// Task of the writing thread. Tasks run in order.
pub(super) enum WriterTask {
    /// Stage blocks of a version. Until that is done or given up, the fetch serves readers of these blocks.
    Store {
        header: Header,
        blocks: Vec<(u64, Bytes)>,
        lead: Lead<Fetched>,
        /// Released once the blocks are staged or given up.
        claim: Option<Claim>,
    },
    /// Record that a block is gone from the ledger.
    Drop { id: u64, block: u64 },
    /// Remove damaged blocks, after the blocks queued before are staged.
    Forget { header: Header, blocks: Vec<u64> },
    /// Report when all earlier tasks are done.
    Settle(oneshot::Sender<()>),
    /// Ends the thread.
    Stop,
}

/// Counts of a stage, and the state of its queue.
#[derive(Debug)]
pub(super) struct Tally {
    /// Shared by stages of the same kind of tier.
    pub(super) metrics: StagedMetrics,
    /// Number of failed writes, and the last error.
    pub(super) failures: Mutex<(u64, String)>,
    /// Bytes of the blocks in the queue.
    pub(super) pending: AtomicU64,
    pub(super) stopped: AtomicBool,
    capacity_bytes: i64,
    /// Contribution of this stage to the gauge of bytes.
    told_bytes: AtomicU64,
}

impl Tally {
    pub(super) fn new(metrics: StagedMetrics, capacity_bytes: u64) -> Self {
        let capacity_bytes = capacity_bytes.cast_signed();
        metrics.capacity_bytes.add(capacity_bytes);
        Self {
            metrics,
            failures: Mutex::default(),
            pending: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            capacity_bytes,
            told_bytes: AtomicU64::new(0),
        }
    }

    /// Counts and logs a failed write.
    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        self.metrics.failures.inc();
        let mut failures = self.failures.lock();
        *failures = (failures.0 + 1, format!("{what}: {error}"));
        let (count, text) = &*failures;
        // Logged at powers of two, because a full disk fails thousands of times.
        if count.is_power_of_two() {
            tracing::warn!(failures = count, "staging failed; reads go to the tier: {text}");
        }
    }

    /// Updates the gauge.
    pub(super) fn tell_bytes(&self, bytes: u64) {
        let told = self.told_bytes.swap(bytes, Ordering::Relaxed);
        self.metrics.bytes.add(bytes.cast_signed() - told.cast_signed());
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell_bytes(0);
        self.metrics.capacity_bytes.sub(self.capacity_bytes);
    }
}
