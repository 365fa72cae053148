//! Device memory, taken from a bounded pool and returned when dropped, and copies inside the device. In: lengths; rows
//! of a memory. Out: [`DeviceBytes`]; a column of all rows, contiguous, in the order of the rows.
//!
//! Taking memory from the driver and registering it with cuFile both cost more than a small read, so blocks are reused.
//! Block sizes are powers of two from 64 KiB, the unit of the GPU's window on the bus.

use super::gpu::Gpu;
use super::memory::Stream;
use super::{DeviceError, DeviceErrorKind};
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Minimum block size, in bytes.
const MIN_BLOCK_BYTES: usize = 64 << 10;
/// Blocks from this size on are whole multiples of it instead of powers of two.
const LARGE: usize = 64 << 20;

/// A device's memory for reads.
#[derive(Debug)]
pub struct DevicePool {
    gpu: Arc<Gpu>,
    limit_bytes: usize,
    /// True if blocks are registered with cuFile.
    registers: bool,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
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
    let len = len.max(MIN_BLOCK_BYTES);
    if len >= LARGE {
        len.checked_next_multiple_of(LARGE)
    } else {
        len.checked_next_power_of_two()
    }
}

impl DevicePool {
    /// Creates a pool of at most `limit_bytes` bytes. If `registers` is true, cuFile can read into its memory directly.
    pub fn new(gpu: &Arc<Gpu>, limit_bytes: usize, registers: bool) -> Arc<Self> {
        Arc::new(Self {
            gpu: Arc::clone(gpu),
            limit_bytes,
            registers,
            blocks: Mutex::default(),
        })
    }

    /// Takes `len` bytes.
    ///
    /// # Errors
    /// The pool is exhausted, or the driver is out of memory.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<DeviceBytes, DeviceError> {
        let used_up = || {
            let rest = format!("the rest of `device_memory_bytes` = {}", self.limit_bytes);
            let hint = "raise it, or read in smaller ranges";
            let detail = format!("{len} bytes of device memory exceed {rest}: {hint}");
            DeviceError::new(DeviceErrorKind::Unavailable, detail)
        };
        let size = rounded(len).filter(|&size| size <= self.limit_bytes);
        let size = size.ok_or_else(used_up)?;
        self.gpu.make_current()?;
        let mut blocks = self.blocks.lock();
        let block = match blocks.free.iter().position(|block| block.len == size) {
            Some(at) => blocks.free.swap_remove(at),
            None => {
                while blocks.bytes + size > self.limit_bytes {
                    let block = blocks.free.pop().ok_or_else(used_up)?;
                    blocks.bytes -= block.len;
                    self.release(block);
                }
                let block = self.allocate(size)?;
                blocks.bytes += size;
                block
            }
        };
        drop(blocks);
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
        let free = std::mem::take(&mut self.blocks.lock().free);
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
        self.pool.blocks.lock().free.push(self.block);
    }
}

/// Rows at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: usize,
    rows: usize,
    pitch: usize,
}

/// Starts to copy a column of `rows` of `from` into `into`, starting at `at`. Rows at equal distances are one copy.
///
/// # Errors
/// A row too short for the column, a tensor too short for the rows; an error of the driver.
///
/// # Panics
/// Never: positions are checked first.
pub fn gather(
    from: &DeviceBytes,
    rows: &[Range<usize>],
    column: Column,
    into: &mut DeviceBytes,
    at: usize,
    stream: &Stream,
) -> Result<(), DeviceError> {
    into.check(at, column.len.saturating_mul(rows.len()))?;
    let mut starts = Vec::with_capacity(rows.len());
    for row in rows {
        let start = row.start.saturating_add(column.offset);
        from.check(start, column.len)?;
        starts.push(start);
    }
    if column.len == 0 {
        return Ok(());
    }
    let gpu = into.gpu();
    gpu.make_current()?;
    let driver = &gpu.driver;
    let mut to = into.address() + at as u64;
    for run in runs(&starts, column.len) {
        let begin = from.address() + run.first as u64;
        let copied = if run.rows == 1 {
            // SAFETY: both ranges lie inside their memory, as checked above.
            unsafe { (driver.inside_async)(to, begin, column.len, stream.at) }
        } else {
            let copy = CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                srcHost: std::ptr::null(),
                srcDevice: begin,
                srcArray: std::ptr::null_mut(),
                srcPitch: run.pitch,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstHost: std::ptr::null_mut(),
                dstDevice: to,
                dstArray: std::ptr::null_mut(),
                dstPitch: column.len,
                WidthInBytes: column.len,
                Height: run.rows,
            };
            // SAFETY: as above for each row; the structure is read during the call only.
            unsafe { (driver.inside_2d_async)(&raw const copy, stream.at) }
        };
        driver.check("a copy inside the device", copied)?;
        to += (run.rows * column.len) as u64;
    }
    Ok(())
}

/// Largest distance of rows in one copy; the driver's limit has been larger on every device since 2010.
const MAX_PITCH: usize = 1 << 20;

/// Splits positions into runs of equal distances, each no shorter than `width`.
fn runs(starts: &[usize], width: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &start in starts {
        if let Some(run) = runs.last_mut() {
            let last = run.first + (run.rows - 1) * run.pitch;
            let pitch = start.wrapping_sub(last);
            let continues = if run.rows == 1 {
                (width..=MAX_PITCH).contains(&pitch)
            } else {
                pitch == run.pitch
            };
            if start > last && continues {
                run.pitch = pitch;
                run.rows += 1;
                continue;
            }
        }
        runs.push(Run {
            first: start,
            rows: 1,
            pitch: width,
        });
    }
    runs
}

/// Bytes of a row that belong to one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Offset in the row, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_have_few_sizes() {
        assert_eq!(rounded(0), Some(MIN_BLOCK_BYTES));
        assert_eq!(rounded((64 << 10) + 1), Some(128 << 10));
        assert_eq!(rounded((1 << 30) + 1), Some((1 << 30) + LARGE));
        assert_eq!(rounded(usize::MAX), None);
    }

    #[test]
    fn equal_distances_are_one_run() {
        let run = |first, rows, pitch| Run { first, rows, pitch };
        assert_eq!(runs(&[0, 512, 1024, 4096], 64), [run(0, 3, 512), run(4096, 1, 64)]);
        assert_eq!(runs(&[512, 0], 64), [run(512, 1, 64), run(0, 1, 64)]);
        assert_eq!(runs(&[7, 7], 64), [run(7, 1, 64), run(7, 1, 64)]);
        assert_eq!(runs(&[], 64), []);
    }

    proptest! {
        #[test]
        fn runs_are_the_places_again(starts in prop::collection::vec(0usize..100_000, 0..50), width in 1usize..600) {
            let again: Vec<usize> = runs(&starts, width)
                .iter()
                .flat_map(|run| (0..run.rows).map(|row| run.first + row * run.pitch).collect::<Vec<_>>())
                .collect();
            prop_assert_eq!(again, starts.clone());
            prop_assert!(runs(&starts, width).iter().all(|run| run.pitch >= width));
        }
    }
}
