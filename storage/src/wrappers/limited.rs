//! Tier with a maximum object size. In: a tier, and the largest object that is read whole. Out: the same tier, in which
//! look-ups of larger objects fail. So a size reported by a tier never causes an allocation of that size.

use crate::device::DeviceReads;
use crate::{ErrorKind, Object, ObjectPath, Read, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;

/// Tier that rejects look-ups of objects above a size.
pub struct Limited {
    inner: Arc<dyn Tier>,
    max_bytes: u64,
    key: &'static str,
}

impl Limited {
    /// Wraps a tier; `key` is the configuration's name of the limit, for the error.
    pub fn new(inner: Arc<dyn Tier>, max_bytes: u64, key: &'static str) -> Self {
        Self { inner, max_bytes, key }
    }
}

#[async_trait]
impl Tier for Limited {
    fn info(&self) -> TierInfo {
        self.inner.info()
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let object = self.inner.stat(path).await?;
        if object.size > self.max_bytes {
            let (size, max, key) = (object.size, self.max_bytes, self.key);
            let detail = format!("object of {size} bytes exceeds the limit of {max}; raise `{key}`");
            return Err(ErrorKind::Invalid.error(path, detail).told_to_clients());
        }
        Ok(object)
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        self.inner.read(object, range).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.inner.read_many(object, ranges).await
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }

    fn device(&self) -> Option<&dyn DeviceReads> {
        self.inner.device()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::memory::MemoryTier;
    use bytes::Bytes;

    #[tokio::test]
    async fn larger_objects_are_not_looked_up() {
        let tier = Limited::new(Arc::new(MemoryTier::new()), 5, "x.max_bytes");
        let path = ObjectPath::new("a").unwrap();
        tier.put(&path, Bytes::from_static(b"12345").into()).await.unwrap();
        assert_eq!(tier.stat(&path).await.unwrap().size, 5);
        tier.put(&path, Bytes::from_static(b"123456").into()).await.unwrap();
        let error = tier.stat(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.for_clients().contains("x.max_bytes"), "{}", error.for_clients());
    }
}
