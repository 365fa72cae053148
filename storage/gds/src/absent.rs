//! Device memory in a build without the feature `cuda`: the same types, of which there are no values. Opening a device is
//! an error that names the feature.

use super::column::Column;
use super::error::{DeviceError, DeviceErrorKind};
use super::find::Search;
use std::convert::Infallible;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// Placeholder for a device; this build opens none.
#[derive(Debug)]
pub struct Gpu(Infallible);

impl Gpu {
    /// Opens no device.
    ///
    /// # Errors
    /// Always: the build has no feature `cuda`.
    pub fn open(_search: Search, ordinal: u32) -> Result<Arc<Self>, DeviceError> {
        let detail = format!(
            "CUDA device {ordinal}: this build reads nothing into device memory: build it with `--features gds`"
        );
        Err(DeviceError::new(DeviceErrorKind::Unsupported, detail))
    }

    /// The number of the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        match self.0 {}
    }

    /// Name of the device.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.0 {}
    }
}

/// An order of work on a device.
#[derive(Debug)]
pub struct Stream(Infallible);

impl Stream {
    /// A stream on a device.
    ///
    /// # Errors
    /// None: there is no device to call it with.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        match gpu.0 {}
    }

    /// Waits for what was begun on it.
    ///
    /// # Errors
    /// None: there is no stream.
    pub fn wait(&self) -> Result<(), DeviceError> {
        match self.0 {}
    }

    /// The driver's handle.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        match self.0 {}
    }
}

/// Host memory that a device reads by itself.
#[derive(Debug)]
pub struct Pinned(Infallible);

impl Pinned {
    /// Host memory for a device.
    ///
    /// # Errors
    /// None: there is no device to call it with.
    pub fn new(gpu: &Arc<Gpu>, _len: usize) -> Result<Self, DeviceError> {
        match gpu.0 {}
    }

    /// Host view of the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self.0 {}
    }

    /// Writable host view of the bytes.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.0 {}
    }
}

/// Device memory within a limit.
#[derive(Debug)]
pub struct DevicePool(Infallible);

impl DevicePool {
    /// A pool on a device.
    #[must_use]
    pub fn new(gpu: &Arc<Gpu>, _limit_bytes: usize) -> Arc<Self> {
        match gpu.0 {}
    }

    /// A pool on a device, for memory that cuFile does not read into.
    #[must_use]
    pub fn unregistered(gpu: &Arc<Gpu>, _limit_bytes: usize) -> Arc<Self> {
        match gpu.0 {}
    }

    /// The device.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        match self.0 {}
    }

    /// Memory of a length.
    ///
    /// # Errors
    /// None: there is no pool.
    pub fn take(self: &Arc<Self>, _len: usize) -> Result<DeviceBytes, DeviceError> {
        match self.0 {}
    }
}

/// Bytes in device memory.
#[derive(Debug)]
pub struct DeviceBytes(Infallible);

impl DeviceBytes {
    /// Device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        match self.0 {}
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    /// True if the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }

    /// The device.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        match self.0 {}
    }

    /// Copies some of them to the host.
    ///
    /// # Errors
    /// None: there are no bytes.
    pub fn to_host(&self, _from: usize, _into: &mut [u8]) -> Result<(), DeviceError> {
        match self.0 {}
    }

    /// Copies bytes of the host to them.
    ///
    /// # Errors
    /// None: there are no bytes.
    pub fn fill(&mut self, _at: usize, _from: &[u8]) -> Result<(), DeviceError> {
        match self.0 {}
    }
}

/// Copies a column of rows into a tensor.
///
/// # Errors
/// None: there are no rows in device memory.
pub fn gather(
    from: &DeviceBytes,
    _rows: &[Range<usize>],
    _column: Column,
    _into: &mut DeviceBytes,
    _at: usize,
    _stream: &Stream,
) -> Result<(), DeviceError> {
    match from.0 {}
}
