//! Files that appear atomically: written under a partial name, synced, renamed into place.

use crate::error::ModelsError;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::{Path, PathBuf};

/// File being written beside its final place. Dropped without [`StagedFile::commit`], it is removed.
///
/// The partial file is `.NAME.partial`, locked while it is written: a second writer is refused. The partial file of a
/// killed writer, whose lock the kernel released, is overwritten by the next writer.
#[derive(Debug)]
pub struct StagedFile {
    pub(crate) file: File,
    /// Path to name in errors about writing.
    pub(crate) partial: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl StagedFile {
    /// Starts the file that will appear at `target`, and creates its parent folders.
    ///
    /// # Errors
    /// A folder that cannot be created or written, or another process that is writing the same file.
    pub fn create(target: &Path) -> Result<Self, ModelsError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let folder = parent_folder(target);
        fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
        let partial = folder.join(format!(".{name}.partial"));
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&partial).map_err(ModelsError::io("create", &partial))?;
            // File systems without locks are written without one.
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let what = "another process is writing it: wait for that process, or stop it";
                return Err(ModelsError::bad(&target.display(), &what));
            }
            // Between opening and locking, another writer may have renamed this file into place.
            if !is_same_file(&partial, &file) {
                continue;
            }
            file.set_len(0).map_err(ModelsError::io("truncate", &partial))?;
            return Ok(Self {
                file,
                partial,
                target: target.to_owned(),
                committed: false,
            });
        }
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// A write that the system refuses.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ModelsError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(ModelsError::io("write", &self.partial))
    }

    /// Syncs the bytes to the device and gives the file its final name.
    ///
    /// # Errors
    /// A sync or rename that the system refuses; then the partial file is removed.
    pub fn commit(mut self) -> Result<(), ModelsError> {
        self.file.sync_all().map_err(ModelsError::io("sync", &self.partial))?;
        fs::rename(&self.partial, &self.target).map_err(ModelsError::io("rename into place", &self.target))?;
        self.committed = true;
        sync_folder(parent_folder(&self.target))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: the next run overwrites a remaining partial file.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Writes a small file atomically.
///
/// # Errors
/// Those of [`StagedFile::create`] and [`StagedFile::commit`].
pub fn write_atomically(target: &Path, bytes: &[u8]) -> Result<(), ModelsError> {
    let staged = StagedFile::create(target)?;
    staged.write_at(bytes, 0)?;
    staged.commit()
}

/// Makes a rename in this folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), ModelsError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(ModelsError::io("sync the folder", folder))
}

fn parent_folder(target: &Path) -> &Path {
    let folder = target.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

fn is_same_file(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(at), Ok(open)) => (at.dev(), at.ino()) == (open.dev(), open.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn an_abandoned_file_leaves_the_old_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.rows");
        write_atomically(&target, b"old").unwrap();
        let staged = StagedFile::create(&target).unwrap();
        (&staged.file).write_all(b"half").unwrap();
        drop(staged);
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_writers_are_one_too_many_and_leftovers_are_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.rows");
        fs::write(
            folder.path().join(".a.rows.partial"),
            b"left by a killed run, and longer",
        )
        .unwrap();
        let first = StagedFile::create(&target).unwrap();
        assert!(
            StagedFile::create(&target)
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        (&first.file).write_all(b"new").unwrap();
        first.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
