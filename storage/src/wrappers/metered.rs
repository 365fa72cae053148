//! Tier with counted and timed reads. In: a tier and its metrics. Out: the same tier, counted.
//!
//! The counts are those of reads that reached the tier, excluding reads that a stage below served from its folder.
//! Reads that failed or were cancelled are counted at the next read, if the tier can report them
//! ([`Tier::take_unreported`]).

use crate::metrics::TierMetrics;
use crate::tier::{DeviceReads, Landed};
use crate::{Body, ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Tier whose reads are counted and timed. Cancelled reads are not timed.
pub struct Metered {
    inner: Arc<dyn Tier>,
    metrics: TierMetrics,
}

impl Metered {
    /// Wraps a tier.
    pub fn new(inner: Arc<dyn Tier>, metrics: TierMetrics) -> Self {
        Self { inner, metrics }
    }

    /// Times and counts a read of `requested` bytes. Its error names `path`.
    async fn counted<T>(
        &self,
        path: &ObjectPath,
        requested: u64,
        read: impl Future<Output = Result<T, StorageError>>,
        cost: impl Fn(&T) -> &ReadCost,
    ) -> Result<T, StorageError> {
        let started = Instant::now();
        let read = read.await.map_err(|e| e.about(path));
        self.metrics.time(started.elapsed());
        if let Some(cost) = self.inner.take_unreported() {
            self.metrics.record(0, &cost);
        }
        match &read {
            Ok(read) => self.metrics.record(requested, cost(read)),
            Err(error) => self.metrics.record_error(error),
        }
        read
    }
}

/// Bytes of ranges, which may be invalid.
fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start));
    bytes.fold(0, u64::saturating_add)
}

/// Used only if the tier below reads into device memory.
#[async_trait]
impl DeviceReads for Metered {
    fn ordinal(&self) -> u32 {
        // Called only if the tier below has a device.
        self.inner.device().map_or(u32::MAX, DeviceReads::ordinal)
    }

    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError> {
        let below = self.inner.device().ok_or_else(|| {
            ErrorKind::Unsupported.error(&object.path, "the tier does not support reads into device memory")
        })?;
        let read = below.read_to_device(object, ranges);
        self.counted(&object.path, bytes_of(ranges), read, |read| &read.cost)
            .await
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
        self.inner.stat(path).await.map_err(|e| e.about(path))
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let read = self.inner.read_many(object, ranges);
        self.counted(&object.path, bytes_of(ranges), read, |many| &many.cost)
            .await
    }

    async fn read_whole(&self, path: &ObjectPath, bytes: u64) -> Result<Read, StorageError> {
        let read = self.inner.read_whole(path, bytes);
        self.counted(path, bytes, read, |read| &read.cost).await
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }

    fn device(&self) -> Option<&dyn DeviceReads> {
        self.inner.device().is_some().then_some(self)
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let listed = self.inner.list(prefix).await;
        listed.map_err(|e| prefix.map_or_else(|| e.clone(), |path| e.clone().about(path)))
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.inner.put(path, body).await.map_err(|e| e.about(path))
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.inner.delete(path).await.map_err(|e| e.about(path))
    }
}
