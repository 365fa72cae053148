//! A call of a device library that failed.

use crate::error::ErrorKind;
#[cfg(feature = "gds")]
use crate::error::StorageError;

/// A call of a device library that failed: what to act on, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DeviceError {
    /// What a caller can act on.
    pub kind: ErrorKind,
    /// The call, the code and its name.
    pub detail: String,
}

#[cfg(feature = "gds")]
impl DeviceError {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    pub(crate) fn of(self, object: &str) -> StorageError {
        StorageError::new(self.kind, object, self.detail)
    }
}
