//! Drops files from the page cache. In: a file or a folder on this machine. Out: nothing. A remote origin's cache is not affected.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Drops a file and returns its length. Writes it out first, because `POSIX_FADV_DONTNEED` only drops clean pages. Pages mapped by
/// another process stay.
///
/// # Errors
/// The file cannot be opened or written out, or the file system does not support dropping.
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
pub fn drop_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_below(&entry.path())?;
        } else if kind.is_file() {
            drop_file(&entry.path())?;
        }
    }
    Ok(())
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
        assert_eq!(drop_file(&folder.path().join("in/b")).unwrap(), 100);
        drop_below(folder.path()).unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), [1; 5_000]);
        assert!(drop_below(&folder.path().join("none")).is_err());
    }
}
