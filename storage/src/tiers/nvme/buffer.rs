//! Aligned buffers from a bounded pool, returned when the last reader of their bytes drops them. In: lengths. Out:
//! buffers that the kernel may write, and that then become `Bytes` without a copy.
//!
//! A pool may own an [`Arena`], memory registered with the ring. Blocks are carved from it on demand and keep their
//! size. If the arena is used up, or for sizes larger than a pooled block, the heap is used.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer, sufficient for direct reads of all usual devices.
pub(super) const BUFFER_ALIGN: usize = 4096;
/// Buffers up to this size are pooled, in classes that are powers of two from [`BUFFER_ALIGN`].
const LARGEST_POOLED: usize = 1 << 20;
const CLASSES: usize = (LARGEST_POOLED / BUFFER_ALIGN).ilog2() as usize + 1;
/// Maximum bytes kept per class: 36 MiB in all.
const KEPT_PER_CLASS: usize = 4 << 20;
/// Alignment of an arena: a huge page, so that the kernel can register it as few pieces.
const ARENA_ALIGN: usize = 2 << 20;
/// Byte that tests find in a buffer not written since its return.
#[cfg(test)]
pub(super) const POISON: u8 = 0xDB;

/// Free buffers. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct BufferPool(Arc<Free>);

#[derive(Debug, Default)]
struct Free {
    classes: [Mutex<Vec<Block>>; CLASSES],
    arena: Option<Arc<Arena>>,
}

/// Memory registered with a ring, from which blocks are carved.
#[derive(Debug)]
pub(super) struct Arena {
    at: NonNull<u8>,
    layout: Layout,
    /// Offset of the uncarved part.
    carved: Mutex<usize>,
}

// SAFETY: plain memory. Each byte belongs to at most one block, and nobody accesses the rest.
unsafe impl Send for Arena {}
// SAFETY: as above; carving is behind a lock.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `bytes` bytes, rounded up to whole huge pages; `None` if memory is short.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let size = bytes.max(1).checked_next_multiple_of(ARENA_ALIGN)?;
        let layout = Layout::from_size_align(size, ARENA_ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // Only a hint: it also works without huge pages.
        // SAFETY: the range is owned, and the advice changes none of its bytes.
        unsafe { libc::madvise(at.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        Some(Self {
            at,
            layout,
            carved: Mutex::new(0),
        })
    }

    /// The whole arena as an iovec.
    pub(super) fn as_iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.at.as_ptr().cast(),
            iov_len: self.layout.size(),
        }
    }

    /// Carves the next `capacity` bytes, if that many are left.
    fn carve(&self, capacity: usize) -> Option<Block> {
        let mut carved = self.carved.lock();
        let end = carved.checked_add(capacity)?;
        if end > self.layout.size() {
            return None;
        }
        // SAFETY: `carved` is inside the allocation, since `end` is.
        let at = unsafe { self.at.add(*carved) };
        *carved = end;
        Some(Block {
            at,
            layout: Layout::from_size_align(capacity, BUFFER_ALIGN).ok()?,
            registered: true,
        })
    }
}

impl Drop for Arena {
    /// Runs after the last block is returned: the pool holds it, and each buffer holds the pool. The engine leaks
    /// buffers in flight.
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and dropped once.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

/// Owned memory, or a registered block lent by the arena permanently.
#[derive(Debug)]
struct Block {
    at: NonNull<u8>,
    layout: Layout,
    registered: bool,
}

// SAFETY: a block is plain memory with one owner.
unsafe impl Send for Block {}

impl Block {
    /// Allocates a block; `None` if memory is short. `capacity` is not zero.
    fn allocate(capacity: usize) -> Option<Self> {
        assert!(capacity > 0);
        let layout = Layout::from_size_align(capacity, BUFFER_ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self {
            at,
            layout,
            registered: false,
        })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.registered {
            // SAFETY: allocated in `allocate` with this layout, and dropped once.
            unsafe { dealloc(self.at.as_ptr(), self.layout) }
        }
    }
}

/// Buffer of at least the requested length. All of it is initialised memory: zero, or left from an earlier read.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Taken when the buffer is dropped.
    block: ManuallyDrop<Block>,
    len: usize,
    pool: BufferPool,
}

// SAFETY: a shared buffer can only be read; its pointer for writing requires `&mut`.
unsafe impl Sync for Buffer {}

/// Class of a capacity; `None` if it is not pooled.
fn class(capacity: usize) -> Option<usize> {
    (capacity <= LARGEST_POOLED).then(|| (capacity / BUFFER_ALIGN).ilog2() as usize)
}

impl BufferPool {
    /// Creates a pool that takes from a registered arena first.
    pub(super) fn with_arena(arena: Arc<Arena>) -> Self {
        Self(Arc::new(Free {
            arena: Some(arena),
            ..Free::default()
        }))
    }

    /// Takes a buffer of `len` bytes; `None` if memory is short.
    pub(super) fn take(&self, len: usize) -> Option<Buffer> {
        let rounded = len.max(1).checked_next_multiple_of(BUFFER_ALIGN)?;
        let capacity = if rounded <= LARGEST_POOLED {
            rounded.next_power_of_two()
        } else {
            rounded
        };
        let free = class(capacity).and_then(|class| self.0.classes[class].lock().pop());
        let carved = || {
            let arena = self.0.arena.as_ref().filter(|_| capacity <= LARGEST_POOLED)?;
            arena.carve(capacity)
        };
        let block = match free.or_else(carved) {
            Some(block) => block,
            None => Block::allocate(capacity)?,
        };
        #[cfg(test)]
        block.assert_untouched();
        Some(Buffer {
            block: ManuallyDrop::new(block),
            len,
            pool: self.clone(),
        })
    }
}

impl Buffer {
    /// Memory for the kernel to write to, valid while the buffer lives and nobody reads it.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.block.at.as_ptr()
    }

    /// Fills the buffer with bytes of a file from `offset`, if the page cache holds all of them.
    pub(super) fn fill_cached(&mut self, file: BorrowedFd<'_>, offset: u64) -> bool {
        let Ok(offset) = libc::off_t::try_from(offset) else {
            return false;
        };
        let part = libc::iovec {
            iov_base: self.as_mut_ptr().cast(),
            iov_len: self.len,
        };
        let (fd, no_high_half): (_, libc::c_long) = (file.as_raw_fd(), 0);
        // The C library's function is a cancellation point, which takes a twentieth of the time of a small read.
        // SAFETY: the block is at least `len` bytes, and nobody else has it while it is borrowed here.
        let read = unsafe {
            libc::syscall(
                libc::SYS_preadv2,
                fd,
                &raw const part,
                1_usize,
                offset,
                no_high_half,
                libc::RWF_NOWAIT,
            )
        };
        usize::try_from(read) == Ok(self.len)
    }

    /// True if the buffer is in the arena that the ring has registered.
    pub(super) fn is_registered(&self) -> bool {
        self.block.registered
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block is at least `len` bytes, initialised, and nobody writes while it is borrowed here: the
        // kernel writes only while the engine holds the buffer, and the engine does not read it.
        unsafe { std::slice::from_raw_parts(self.block.at.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: taken once, and not used afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        #[cfg(test)]
        // SAFETY: the block is that many bytes, and this is its only owner.
        unsafe {
            std::ptr::write_bytes(block.at.as_ptr(), POISON, block.layout.size());
        }
        if let Some(class) = class(block.layout.size()) {
            let mut free = self.pool.0.classes[class].lock();
            // Blocks of the arena always return to the pool, because the arena is limited.
            if block.registered || (free.len() + 1) * block.layout.size() <= KEPT_PER_CLASS {
                free.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Block {
        /// In tests every returned buffer is poisoned, so that a later write shows here.
        pub(super) fn assert_untouched(&self) {
            // SAFETY: the block is that many bytes, initialised, and this is its only owner.
            let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.layout.size()) };
            let first = bytes[0];
            let clean = (first == POISON || first == 0) && bytes.iter().all(|&b| b == first);
            assert!(clean, "a buffer was written after it was given back");
        }
    }

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let pool = BufferPool::default();
        for len in [0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, 5 << 20] {
            let mut buffer = pool.take(len).unwrap();
            assert_eq!(buffer.as_mut_ptr() as usize % BUFFER_ALIGN, 0);
            assert_eq!(buffer.as_ref().len(), len);
        }
        let first = pool.take(5000).unwrap().as_mut_ptr();
        assert_eq!(
            pool.take(8192).unwrap().as_mut_ptr(),
            first,
            "the freed buffer of the same class is taken again"
        );
    }

    #[test]
    fn the_pool_is_bounded() {
        let pool = BufferPool::default();
        drop((0..64).map(|_| pool.take(1 << 20)).collect::<Vec<_>>());
        assert_eq!(pool.0.classes[CLASSES - 1].lock().len(), KEPT_PER_CLASS >> 20);
        assert!(pool.take(usize::MAX).is_none());
    }

    #[test]
    fn the_arena_serves_until_it_is_used_up() {
        let pool = BufferPool::with_arena(Arc::new(Arena::new(3 << 20).unwrap()));
        let large: Vec<_> = (0..5).map(|_| pool.take(1 << 20).unwrap()).collect();
        let registered = |buffers: &[Buffer]| buffers.iter().filter(|buffer| buffer.is_registered()).count();
        assert_eq!(registered(&large), 4, "rounded up to whole huge pages");
        assert!(!pool.take(4096).unwrap().is_registered());
        assert!(!pool.take((1 << 20) + 1).unwrap().is_registered());
        let mut places: Vec<_> = large.iter().map(|buffer| buffer.as_ref().as_ptr()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 5, "no two buffers share memory");
        drop(large);
        let again: Vec<_> = (0..5).map(|_| pool.take(1 << 20).unwrap()).collect();
        assert_eq!(registered(&again), 4);
        drop(pool);
        assert_eq!(again[0].as_ref().len(), 1 << 20, "a buffer outlives the pool's owner");
    }

    #[test]
    #[should_panic(expected = "written after it was given back")]
    fn a_late_write_is_noticed() {
        let pool = BufferPool::default();
        let late = pool.take(4096).unwrap().as_mut_ptr();
        // SAFETY: the block lies in the pool, so the memory is still allocated, and nothing else runs in this test.
        unsafe { late.write(1) };
        pool.take(4096);
    }
}
