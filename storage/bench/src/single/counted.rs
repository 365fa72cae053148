//! Counts the read calls that reach a tier from the cache in front of it. In and out: a tier. Knows nothing of the cache.

use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierlab_protocol::via::ViaSet;
use tierlab_storage::{Body, Object, ObjectPath, ReadMany, StorageError, Tier, TierInfo};

/// A tier whose reads are counted.
pub(crate) struct Counted {
    tier: Arc<dyn Tier>,
    reads: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(tier: Arc<dyn Tier>) -> Self {
        Self {
            tier,
            reads: Arc::default(),
        }
    }

    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.reads.clone()
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

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.tier.read_many(object, ranges).await
    }

    fn shortfall(&self, took: ViaSet) -> Option<String> {
        self.tier.shortfall(took)
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        self.tier.forget(object, ranges).await;
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.tier.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.tier.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.tier.delete(path).await
    }
}
