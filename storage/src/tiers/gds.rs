//! GPUDirect Storage.

use crate::error::StorageError;
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadMany, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;

/// GPUDirect Storage.
#[derive(Debug)]
pub enum GdsTier {}

impl GdsTier {
    /// Connects.
    ///
    /// # Errors
    /// Always.
    pub async fn open(_root: &std::path::Path, _device: u32) -> Result<Self, StorageError> {
        Err(StorageError::new(
            crate::ErrorKind::Unsupported,
            "gds",
            "not in this build",
        ))
    }
}

#[async_trait]
impl Tier for GdsTier {
    fn info(&self) -> TierInfo {
        match *self {}
    }
    async fn stat(&self, _path: &ObjectPath) -> Result<Object, StorageError> {
        match *self {}
    }
    async fn read_many(&self, _object: &Object, _ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        match *self {}
    }
    async fn list(&self, _prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        match *self {}
    }
    async fn put(&self, _path: &ObjectPath, _body: Body) -> Result<Object, StorageError> {
        match *self {}
    }
    async fn delete(&self, _path: &ObjectPath) -> Result<(), StorageError> {
        match *self {}
    }
}
