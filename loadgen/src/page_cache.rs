//! The page cache below a folder, dropped on purpose. In: a folder on this machine. Out: what the kernel was asked to
//! forget. Only this machine's kernel is asked: what a remote origin keeps is its own.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Files of one folder at most; a lab's origins hold some dozens.
const MOST_FILES: u64 = 1_000_000;

/// What was dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Files.
    pub files: u64,
    /// Their bytes, in the cache before or not.
    pub bytes: u64,
}

/// Writes every file below `folder` out, since only clean pages go, and tells the kernel that none of its pages is
/// needed (`POSIX_FADV_DONTNEED`). Pages that another process has mapped stay.
///
/// # Errors
/// A file cannot be opened or written out, or the file system takes no such advice.
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
