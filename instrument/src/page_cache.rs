//! Files dropped from the page cache. In: a file or a folder on this machine. Out: number and bytes of the files that the kernel was asked to
//! drop. A remote origin keeps its own cache.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Most files below a folder; a lab's origins hold some dozens.
const MOST_FILES: u64 = 1_000_000;

/// Files that were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of files.
    pub files: u64,
    /// Bytes of the files, whether they were in the cache or not.
    pub bytes: u64,
}

/// Drops a file and returns its length. Writes it out first, because only clean pages are dropped by `POSIX_FADV_DONTNEED`. Pages that
/// another process has mapped stay.
///
/// # Errors
/// The file cannot be opened or written out, or the file system takes no such advice.
pub fn drop_file(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    file.sync_data()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file.metadata()?.len())
}

/// Drops every file below `folder`, like [`drop_file`].
///
/// # Errors
/// A folder cannot be read, or a file cannot be dropped.
pub fn drop_below(folder: &Path) -> io::Result<Dropped> {
    let mut dropped = Dropped::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                dropped.files += 1;
                dropped.bytes += drop_file(&entry.path())?;
            }
            if dropped.files > MOST_FILES {
                return Err(io::Error::other(format!("more than {MOST_FILES} files")));
            }
        }
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_below_is_dropped_and_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("a"), [1; 5_000]).unwrap();
        fs::write(folder.path().join("in/b"), [2; 100]).unwrap();
        let dropped = drop_below(folder.path()).unwrap();
        assert_eq!(dropped, Dropped { files: 2, bytes: 5_100 });
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), [1; 5_000]);
        assert!(drop_below(&folder.path().join("none")).is_err());
    }
}
