//! Memory map of a file. In: an open file. Out: its bytes, copied.
#![allow(unsafe_code)]

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Read-only map of a whole file, unmapped on drop.
pub(super) struct Map {
    start: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: the map is read-only and belongs to this value alone; reading it from any thread is sound.
unsafe impl Send for Map {}

impl Map {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let len = usize::try_from(file.metadata()?.len()).ok().and_then(NonZeroUsize::new);
        let len = len.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a new map at an address of the kernel's choice, of an open file.
        let start = unsafe { mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, file, 0) };
        Ok(Self { start: start?, len })
    }

    /// Copies bytes from the map, which causes the page faults of cold bytes.
    pub(super) fn copy(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset)
            .ok()
            .filter(|from| from.checked_add(into.len()).is_some_and(|to| to <= self.len.get()));
        let from = from.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let start = self.start.cast::<u8>().as_ptr();
        // SAFETY: inside the map, by the check above; the file is in the bench's own folder, and is not shortened while it is
        // mapped. `into` is the caller's, so the two cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(start.add(from), into.as_mut_ptr(), into.len()) };
        // Only the start of the copy is checked: without this the compiler might drop the rest.
        std::hint::black_box(into);
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, once, and nothing borrows from it.
        let _ = unsafe { munmap(self.start, self.len.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_and_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"0123456789").unwrap();
        let map = Map::new(&File::open(&path).unwrap()).unwrap();
        let mut part = [0; 4];
        map.copy(6, &mut part).unwrap();
        assert_eq!(&part, b"6789");
        assert_eq!(map.copy(7, &mut part).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(map.copy(u64::MAX, &mut part).is_err());
    }
}
