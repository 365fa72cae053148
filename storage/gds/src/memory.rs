//! Streams, events and pinned host memory, each released when it is dropped. In: a device. Out: handles. Callers make
//! the device current on their thread; drops do so themselves.

use super::gpu::{EVENT_BLOCKING_UNTIMED, Gpu, STREAM_NON_BLOCKING};
use super::{DeviceError, DeviceErrorKind};
use cudarc::driver::sys::{CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr, CUevent, CUstream};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of pinned memory: enough for direct reads of every usual device.
const PINNED_ALIGN: usize = 4096;

/// Stream of copies that run in order.
#[derive(Debug)]
pub struct Stream {
    pub(crate) at: CUstream,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver takes a stream from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Creates a stream.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        gpu.make_current()?;
        let mut at = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let code = unsafe { (gpu.driver.stream_create)(&raw mut at, STREAM_NON_BLOCKING) };
        gpu.driver.check("cuStreamCreate", code)?;
        let gpu = Arc::clone(gpu);
        Ok(Self { at, gpu })
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// An error of the driver, of this call or of a copy on the stream.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.gpu.make_current()?;
        // SAFETY: the stream is ours.
        let done = unsafe { (self.gpu.driver.stream_wait)(self.at) };
        self.gpu.driver.check("cuStreamSynchronize", done)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Work on the stream must not outlive the memory that it uses.
        if let Err(error) = self.wait() {
            tracing::warn!(%error, "the last work of a stream failed");
        }
        // SAFETY: ours, and used no more.
        unsafe { (self.gpu.driver.stream_destroy)(self.at) };
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    at: CUevent,
    gpu: Arc<Gpu>,
}

// SAFETY: as of a stream.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, DeviceError> {
        let mut at = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        let code = unsafe { (gpu.driver.event_create)(&raw mut at, EVENT_BLOCKING_UNTIMED) };
        gpu.driver.check("cuEventCreate", code)?;
        let gpu = Arc::clone(gpu);
        Ok(Self { at, gpu })
    }

    /// Marks the current end of the stream's work.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are ours.
        let recorded = unsafe { (self.gpu.driver.event_record)(self.at, stream.at) };
        self.gpu.driver.check("cuEventRecord", recorded)
    }

    /// Waits for the mark; returns at once without a mark.
    pub(crate) fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: ours.
        let done = unsafe { (self.gpu.driver.event_wait)(self.at) };
        self.gpu.driver.check("cuEventSynchronize", done)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.gpu.make_current();
        // SAFETY: ours, and used no more; the driver lets go of it when the point is reached.
        unsafe { (self.gpu.driver.event_destroy)(self.at) };
    }
}

/// Page-locked host memory that the device copies from and to by itself. The pages are allocated here and locked by the
/// driver, because the kernel refuses to read files directly into memory that the driver maps.
#[derive(Debug)]
pub struct Pinned {
    at: NonNull<u8>,
    layout: Layout,
    gpu: Arc<Gpu>,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pinned {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// Not enough memory, or not enough that may be locked.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self, DeviceError> {
        let none = || {
            let detail = format!("no host memory for {len} pinned bytes");
            DeviceError::new(DeviceErrorKind::Unavailable, detail)
        };
        let size = len.max(1).checked_next_multiple_of(PINNED_ALIGN).ok_or_else(none)?;
        let layout = Layout::from_size_align(size, PINNED_ALIGN).map_err(|_| none())?;
        gpu.make_current()?;
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(none)?;
        // SAFETY: the memory is ours, and unlocked before it is freed.
        let pinned = unsafe { (gpu.driver.pin)(at.as_ptr().cast(), size, CU_MEMHOSTREGISTER_PORTABLE) };
        if let Err(error) = gpu.driver.check("cuMemHostRegister", pinned) {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(at.as_ptr(), layout) };
            let hint = "; lower `pinned_buffers` or `chunk_bytes`, or raise the limit of locked memory (ulimit -l)";
            return Err(DeviceError::new(error.kind, format!("{}{hint}", error.detail)));
        }
        let gpu = Arc::clone(gpu);
        Ok(Self { at, layout, gpu })
    }

    /// Host view of the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is that long, initialised, and borrowed here.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) }
    }

    /// Writable host view of the bytes. Do not write while a copy from the buffer is in flight.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is its only owner.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.layout.size()) }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Starts to copy `len` bytes, starting at `from`, to device memory.
    ///
    /// # Safety
    /// `to` is device memory of `len` bytes; neither that nor these bytes are touched until the stream has got past it.
    pub(crate) unsafe fn copy_to(
        &self,
        from: usize,
        to: CUdeviceptr,
        len: usize,
        stream: &Stream,
    ) -> Result<(), DeviceError> {
        assert!(from + len <= self.layout.size());
        // SAFETY: inside the memory, as just checked; the rest is the caller's promise.
        let code = unsafe { (self.gpu.driver.to_device_async)(to, self.at.as_ptr().add(from).cast(), len, stream.at) };
        self.gpu.driver.check("cuMemcpyHtoDAsync", code)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let unpinned = self.gpu.make_current().and_then(|()| {
            // SAFETY: registered in `new`; whoever copied from it has waited.
            let done = unsafe { (self.gpu.driver.unpin)(self.at.as_ptr().cast()) };
            self.gpu.driver.check("cuMemHostUnregister", done)
        });
        match unpinned {
            // SAFETY: allocated in `new` with this very layout.
            Ok(()) => unsafe { dealloc(self.at.as_ptr(), self.layout) },
            Err(error) => tracing::warn!(%error, "pinned memory could not be released"),
        }
    }
}
