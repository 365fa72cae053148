//! Reading into device memory, as a tier offers it.

#[cfg(not(feature = "gds"))]
use super::absent::DeviceBytes;
use super::error::DeviceError;
#[cfg(feature = "gds")]
use super::pool::DeviceBytes;
use crate::cost::ReadCost;
use crate::error::StorageError;
use crate::object::Object;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;

/// Ranges of an object in device memory.
#[derive(Debug)]
pub struct Landed {
    /// The memory; it goes back to its pool when this is dropped.
    pub bytes: DeviceBytes,
    /// Where in it each range lies, in the order asked for.
    pub parts: Vec<Range<usize>>,
    /// How all of them were got.
    pub cost: ReadCost,
}

impl Landed {
    /// Copies every range to the host and waits: one copy of all that was read, whatever the number of ranges. The parts
    /// share its memory, so they are for a look and not for keeping.
    ///
    /// # Errors
    /// The driver's.
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

    /// Reads many ranges into device memory: all of them, or an error. The future may be dropped at any moment: the read
    /// owns its memory until it has ended.
    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError>;
}
