//! A tier whose reads are counted and timed. In: a tier and its metrics. Out: the same tier, counted.

use super::metrics::TierMetrics;
use crate::error::StorageError;
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadMany, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A tier whose reads are counted and timed. Reads whose future is dropped are neither.
pub struct Metered {
    inner: Arc<dyn Tier>,
    metrics: TierMetrics,
}

impl Metered {
    /// Wraps a tier.
    #[must_use]
    pub fn new(inner: Arc<dyn Tier>, metrics: TierMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl Tier for Metered {
    fn info(&self) -> TierInfo {
        let mut info = self.inner.info();
        info.wrappers.insert(0, "metered".to_owned());
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let started = Instant::now();
        let read = self.inner.read_many(object, ranges).await;
        self.metrics.time(started.elapsed());
        match &read {
            Ok(many) => {
                let asked = many.parts.iter().map(|part| part.len() as u64).sum();
                self.metrics.record(asked, &many.cost);
            }
            Err(error) => self.metrics.record_error(error),
        }
        read
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        self.inner.forget(object, ranges).await;
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.inner.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.inner.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.inner.delete(path).await
    }
}
