//! Reads into device memory: finding NVIDIA's libraries, one CUDA context, memory on both sides, and every way from a
//! file to the device. In: open files and ranges. Out: bytes in device memory, and how they got there.
//!
//! Everything is loaded at run time, so that this builds and is tested without a CUDA toolkit; a start without the
//! libraries is one error that lists what was looked for. **Nothing here has run on hardware**: the tests run it against
//! a stand-in in which host memory plays the device (`tests/standin/`). Knows nothing of tiers or models.
//!
//! Types, constants, layouts and signatures are cudarc's (`driver::sys`, `cufile::sys`). Loading is ours: cudarc panics
//! where a library or a function is missing, and never looks for `libcufile.so.0`, the only name in NVIDIA's wheel.
//!
//! Ours as well: codes that come back are plain numbers, since one that this build does not know may not become a Rust
//! enum; and NVML, which cudarc does not have (docs.nvidia.com/deploy/nvml-api).

pub(crate) mod counters;
mod cufile;
mod driver;
pub(crate) mod engine;
mod find;
mod gather;
mod gpu;
mod memory;
pub mod nvml;
mod path;
mod pool;
mod routes;

pub use find::{Search, device_nodes};
pub use gather::{Column, gather};
pub use gpu::Gpu;
pub use memory::{Pinned, Stream};
pub use path::{DevicePath, missing_for_gds, shortfall};
pub use pool::{DeviceBytes, DevicePool};

use crate::error::{ErrorKind, StorageError};
use crate::tier::{Object, ReadCost};
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

/// A call of a device library that failed: what to act on, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DeviceError {
    /// What a caller can act on.
    pub kind: ErrorKind,
    /// The call, the code and its name.
    pub detail: String,
}

impl DeviceError {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }

    pub(crate) fn of(self, object: &str) -> StorageError {
        StorageError::new(self.kind, object, self.detail)
    }
}
