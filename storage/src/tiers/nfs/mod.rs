//! An NFSv3 export.

use crate::config::NfsConfig;
use crate::error::StorageError;
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadMany, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;

/// An NFSv3 export.
#[derive(Debug)]
pub enum NfsTier {}

impl NfsTier {
    /// Connects.
    ///
    /// # Errors
    /// Always.
    pub async fn connect(_config: &NfsConfig) -> Result<Self, StorageError> {
        Err(StorageError::new(crate::ErrorKind::Unsupported, "nfs", "not in this build"))
    }
}

#[async_trait]
impl Tier for NfsTier {
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
