//! Counts the calls that reach a tier through the wrappers in front of it. In and out: a tier. Knows nothing of the
//! wrappers.

use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierlab_storage::{Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};

/// Counters of a tier.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Read calls.
    pub(crate) calls: AtomicU64,
    /// Requests of the tier to its device or server.
    requests: AtomicU64,
    /// Bytes received, including over-read.
    wire_bytes: AtomicU64,
}

impl Counts {
    fn add(&self, cost: &ReadCost) {
        self.requests.fetch_add(u64::from(cost.requests), Ordering::Relaxed);
        self.wire_bytes.fetch_add(cost.wire_bytes, Ordering::Relaxed);
    }

    /// Requests and bytes so far.
    pub(crate) fn load(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.requests), load(&self.wire_bytes))
    }
}

/// Tier whose reads are counted.
pub(crate) struct Counted {
    tier: Arc<dyn Tier>,
    pub(crate) counts: Arc<Counts>,
}

impl Counted {
    pub(crate) fn new(tier: Arc<dyn Tier>) -> Self {
        Self {
            tier,
            counts: Arc::default(),
        }
    }
}

#[async_trait]
impl Tier for Counted {
    fn info(&self) -> TierInfo {
        self.tier.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.tier.stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        // Without `read_many`: a tier may have a better way for a single large range.
        let read = self.tier.read(object, range).await?;
        self.counts.add(&read.cost);
        Ok(read)
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        let read = self.tier.read_many(object, ranges).await?;
        self.counts.add(&read.cost);
        Ok(read)
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.tier)
    }
}
