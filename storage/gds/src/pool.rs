//! Device memory, taken from a bounded pool and returned when dropped. In: lengths. Out: [`DeviceBytes`].
//!
//! Taking memory from the driver and registering it with cuFile both cost more than a small read, so blocks are reused.
//! Block sizes are powers of two from 64 KiB, the unit of the GPU's window on the bus.

use super::error::{DeviceError, DeviceErrorKind};
use super::gpu::Gpu;
use parking_lot::Mutex;
use std::sync::Arc;

/// Minimum block size, in bytes.
const SMALLEST: usize = 64 << 10;
/// Blocks from this size on are whole multiples of it instead of powers of two.
const LARGE: usize = 64 << 20;

/// A device's memory for reads.
#[derive(Debug)]
pub struct DevicePool {
    gpu: Arc<Gpu>,
    limit_bytes: usize,
    /// True if blocks are registered with cuFile.
    registers: bool,
    kept: Mutex<FreeBlocks>,
}

#[derive(Debug, Default)]
struct FreeBlocks {
    free: Vec<Block>,
    /// Size of all blocks, free or in use.
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    at: u64,
    len: usize,
    registered: bool,
}

/// Device memory, owned.
#[derive(Debug)]
pub struct DeviceBytes {
    block: Block,
    len: usize,
    pool: Arc<DevicePool>,
}

fn rounded(len: usize) -> Option<usize> {
    let len = len.max(SMALLEST);
    if len >= LARGE {
        len.checked_next_multiple_of(LARGE)
    } else {
        len.checked_next_power_of_two()
    }
}

impl DevicePool {
    /// Creates a pool of at most `limit_bytes` bytes.
    pub fn new(gpu: &Arc<Gpu>, limit_bytes: usize) -> Arc<Self> {
        Self::with(gpu, limit_bytes, gpu.cufile.is_some())
    }

    /// Creates a pool of memory that cuFile never reads into.
    pub fn unregistered(gpu: &Arc<Gpu>, limit_bytes: usize) -> Arc<Self> {
        Self::with(gpu, limit_bytes, false)
    }

    fn with(gpu: &Arc<Gpu>, limit_bytes: usize, registers: bool) -> Arc<Self> {
        Arc::new(Self {
            gpu: Arc::clone(gpu),
            limit_bytes,
            registers,
            kept: Mutex::default(),
        })
    }

    /// Returns the device.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// The pool is exhausted, or the driver is out of memory.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<DeviceBytes, DeviceError> {
        let used_up = || {
            let detail = format!(
                "{len} bytes of device memory exceed the rest of `device_memory_bytes` = {}: raise it, or read in \
                 smaller ranges",
                self.limit_bytes
            );
            DeviceError::new(DeviceErrorKind::Unavailable, detail)
        };
        let size = rounded(len)
            .filter(|&size| size <= self.limit_bytes)
            .ok_or_else(used_up)?;
        self.gpu.make_current()?;
        let mut kept = self.kept.lock();
        let block = match kept.free.iter().position(|block| block.len == size) {
            Some(at) => kept.free.swap_remove(at),
            None => {
                while kept.bytes + size > self.limit_bytes {
                    let block = kept.free.pop().ok_or_else(used_up)?;
                    kept.bytes -= block.len;
                    self.release(block);
                }
                let block = self.allocate(size)?;
                kept.bytes += size;
                block
            }
        };
        drop(kept);
        let pool = Arc::clone(self);
        Ok(DeviceBytes { block, len, pool })
    }

    fn allocate(&self, len: usize) -> Result<Block, DeviceError> {
        let mut at = 0;
        let driver = &self.gpu.driver;
        // SAFETY: the pointer is to a local; the memory is freed in `release`.
        driver.check("cuMemAlloc", unsafe { (driver.alloc)(&raw mut at, len) })?;
        let mut registered = false;
        if let Some(cufile) = self.gpu.cufile.as_ref().filter(|_| self.registers) {
            // SAFETY: just allocated with that length, and deregistered before it is freed.
            match unsafe { cufile.register_buffer(at, len) } {
                Ok(()) => registered = true,
                Err(error) => tracing::warn!(%error, "cuFile reads through its own buffer"),
            }
        }
        Ok(Block { at, len, registered })
    }

    /// Frees a block. The device must be current.
    fn release(&self, block: Block) {
        if let Some(cufile) = self.gpu.cufile.as_ref().filter(|_| block.registered) {
            // SAFETY: registered, and nobody reads into a free block.
            unsafe { cufile.deregister_buffer(block.at) };
        }
        let driver = &self.gpu.driver;
        // SAFETY: the memory is ours and nobody's any more.
        if let Err(error) = driver.check("cuMemFree", unsafe { (driver.free)(block.at) }) {
            tracing::warn!(%error, "device memory could not be freed");
        }
    }
}

impl Drop for DevicePool {
    /// Runs after the last block, because each holds the pool.
    fn drop(&mut self) {
        if let Err(error) = self.gpu.make_current() {
            tracing::warn!(%error, "device memory could not be released");
            return;
        }
        let free = std::mem::take(&mut self.kept.lock().free);
        free.into_iter().for_each(|block| self.release(block));
    }
}

impl DeviceBytes {
    /// Address on the device. The host cannot use it.
    pub fn address(&self) -> u64 {
        self.block.at
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device of the memory.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.pool.gpu
    }

    /// Copies bytes, starting at `from`, to the host, and waits for them.
    ///
    /// # Errors
    /// Bytes outside of the memory; an error of the driver.
    pub fn to_host(&self, from: usize, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check(from, into.len())?;
        if into.is_empty() {
            return Ok(());
        }
        let gpu = &self.pool.gpu;
        gpu.make_current()?;
        // SAFETY: inside this memory, as just checked; any byte is a u8.
        let copied = unsafe { (gpu.driver.to_host)(into.as_mut_ptr().cast(), self.block.at + from as u64, into.len()) };
        gpu.driver.check("cuMemcpyDtoH", copied)
    }

    /// Copies bytes from the host to the memory, starting at `at`, and waits for them.
    ///
    /// # Errors
    /// Bytes outside of the memory; an error of the driver.
    pub fn fill(&mut self, at: usize, from: &[u8]) -> Result<(), DeviceError> {
        self.check(at, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let gpu = &self.pool.gpu;
        gpu.make_current()?;
        // SAFETY: inside this memory, as just checked.
        let copied = unsafe { (gpu.driver.to_device)(self.block.at + at as u64, from.as_ptr().cast(), from.len()) };
        gpu.driver.check("cuMemcpyHtoD", copied)
    }

    pub(crate) fn check(&self, at: usize, len: usize) -> Result<(), DeviceError> {
        if at.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let detail = format!("bytes {at}..{} of {} on the device", at.saturating_add(len), self.len);
        Err(DeviceError::new(DeviceErrorKind::OutOfRange, detail))
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        self.pool.kept.lock().free.push(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_few_sizes() {
        assert_eq!(rounded(0), Some(SMALLEST));
        assert_eq!(rounded((64 << 10) + 1), Some(128 << 10));
        assert_eq!(rounded((1 << 30) + 1), Some((1 << 30) + LARGE));
        assert_eq!(rounded(usize::MAX), None);
    }
}
