//! Two times in a file mapped by every process that opens it. All unsafe code of this wrapper is here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const FILE_BYTES: u64 = size_of::<Moments>() as u64;

/// In nanoseconds of the monotonic clock.
#[repr(C)]
pub(super) struct Moments {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// The file in memory.
pub(super) struct Mapped(NonNull<Moments>);

// SAFETY: what it points to is atomics alone, mapped until this is dropped.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file that is open for reading and writing, and extends it to the needed length.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < FILE_BYTES {
            file.set_len(FILE_BYTES)?;
        }
        // SAFETY: a new mapping of a file that is at least as long; nobody here makes it shorter.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Moments>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(mapped.cast::<Moments>()) {
            Some(moments) if mapped != libc::MAP_FAILED => Ok(Self(moments)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn moments(&self) -> &Moments {
        // SAFETY: mapped by `of`, for as long as this lives.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nobody has it any more.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), size_of::<Moments>());
        }
    }
}
