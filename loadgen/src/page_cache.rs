//! Drops the page cache of a folder's files. In: a folder on this machine. Out: the files that the kernel was asked to
//! drop. Only this machine's cache is affected, not that of a remote origin.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Maximum number of files in a folder; a lab's origins hold some dozens.
const MOST_FILES: u64 = 1_000_000;

/// Dropped files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Number of files.
    pub files: u64,
    /// Bytes of the files, cached before or not.
    pub bytes: u64,
}

/// Writes out every file below `folder`, because only clean pages are dropped, and tells the kernel that none of its
/// pages is needed (`POSIX_FADV_DONTNEED`). Pages that another process has mapped stay.
///
/// # Errors
/// A file cannot be opened or written out, or the file system does not support such advice.
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
                let file = File::open(entry.path())?;
                file.sync_data()?;
                posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
                dropped.files += 1;
                dropped.bytes += file.metadata()?.len();
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
