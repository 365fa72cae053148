//! Reads into device memory, as a tier offers them. Devices and the paths to them are in `tierlab-gds`, which knows
//! nothing of objects and versions. Its types are re-exported here, because [`DeviceReads`] returns them.

use crate::cost::ReadCost;
use crate::error::{ErrorKind, StorageError};
use crate::object::Object;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;

pub use tierlab_gds::{
    Column, DeviceBytes, DeviceError, DeviceErrorKind, DevicePath, DevicePool, Gpu, Pinned, Search, Stream,
    device_nodes, gather, missing_for_gds, nvml, shortfall,
};

/// Ranges of an object in device memory.
#[derive(Debug)]
pub struct Landed {
    /// The memory; it goes back to its pool when this is dropped.
    pub bytes: DeviceBytes,
    /// Position of each range in `bytes`, in request order.
    pub parts: Vec<Range<usize>>,
    /// Cost of all parts together.
    pub cost: ReadCost,
}

impl Landed {
    /// Copies every range to the host and waits: a single copy of all bytes, whatever the number of ranges. The parts
    /// share its memory, so do not keep single parts for long.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn to_host(&self) -> Result<Vec<Bytes>, DeviceError> {
        let mut all = vec![0; self.bytes.len()];
        self.bytes.to_host(0, &mut all)?;
        let all = Bytes::from(all);
        Ok(self.parts.iter().map(|part| all.slice(part.clone())).collect())
    }
}

/// A tier that can read into device memory.
#[async_trait]
pub trait DeviceReads: Send + Sync {
    /// The number of the device.
    fn ordinal(&self) -> u32;

    /// Reads many ranges into device memory: all of them, or an error. The future may be dropped at any moment: the
    /// read owns its memory until it has ended.
    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError>;
}

impl StorageError {
    /// A device's error about `object`.
    #[must_use]
    pub fn of_device(object: impl Into<String>, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::Unsupported => ErrorKind::Unsupported,
            DeviceErrorKind::Unavailable => ErrorKind::Unavailable,
            DeviceErrorKind::Denied => ErrorKind::Denied,
            DeviceErrorKind::Invalid => ErrorKind::Invalid,
            DeviceErrorKind::OutOfRange => ErrorKind::OutOfRange,
            DeviceErrorKind::Changed => ErrorKind::Changed,
            DeviceErrorKind::Io(kind) => ErrorKind::of_io(kind),
        };
        Self::new(kind, object, error.detail)
    }
}
