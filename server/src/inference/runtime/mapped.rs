//! Weights on a local disk, for ONNX Runtime to map into memory: it takes no tensor of 2 GiB or more any other way.
//!
//! In: where, from which size of a tensor on, and how many bytes at most. Out: a folder for the files of one version,
//! which goes when the version's sessions are built, and the room that its files take up for as long as sessions map them.
//! A copy is made even of files that lie on a local disk already: theirs may be written to in place, which would change a
//! model that is served, or, when a file is cut short, end the process.

use nix::sys::statvfs::statvfs;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tempfile::TempDir;

/// Bytes of one tensor that ONNX Runtime does not take from memory: it makes a protobuf message of each that it does.
pub(crate) const NEVER_FROM_MEMORY_BYTES: u64 = 1 << 31;
/// The beginning of the names of folders.
const PREFIX: &str = "tierlab-weights-";
/// Attempts at a folder of our own, which another server may take for one that a crash left behind.
const MAX_ATTEMPTS: usize = 8;

/// `[runtime.weights]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MappedConfig {
    /// Bytes of one tensor from which on a version's weights are mapped; at most [`NEVER_FROM_MEMORY_BYTES`].
    #[serde(rename = "map_from_bytes")]
    pub(crate) from_bytes: u64,
    /// Parent folder. An empty path stands for the folder of temporary files.
    pub(crate) folder: PathBuf,
    /// Bytes at most, of everything that is mapped at the same time.
    pub(crate) max_bytes: u64,
}

impl Default for MappedConfig {
    fn default() -> Self {
        Self {
            from_bytes: NEVER_FROM_MEMORY_BYTES,
            folder: PathBuf::new(),
            max_bytes: 64 << 30,
        }
    }
}

/// Decides which weights are mapped, and reserves disk space for them.
#[derive(Debug)]
pub(crate) struct MappedWeights {
    config: MappedConfig,
    taken: Arc<AtomicU64>,
}

/// Bytes on the disk, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    pub(crate) bytes: u64,
    taken: Arc<AtomicU64>,
}

impl Drop for DiskSpace {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Relaxed);
    }
}

/// The folder of one version's files. Dropping it removes them; what sessions have mapped stays until they end.
#[derive(Debug)]
pub(crate) struct WeightFolder {
    folder: TempDir,
    /// Disk space of its files, held while they are mapped.
    pub(crate) room: Arc<DiskSpace>,
    /// Held as long as somebody needs the folder, so that no other server takes it for one that was left behind.
    _lock: File,
}

impl MappedWeights {
    /// Removes what a crash left behind; a folder that is not there yet is no error.
    pub(crate) fn new(config: MappedConfig) -> Self {
        sweep(&config.folder);
        Self {
            config,
            taken: Arc::default(),
        }
    }

    /// True if a version whose largest tensor has `largest` bytes is mapped.
    pub(crate) fn wants(&self, largest: u64) -> bool {
        largest >= self.config.from_bytes
    }

    /// Makes a folder for files of `bytes` together.
    ///
    /// # Errors
    /// More than there may be or is room for, or a folder that cannot be made; the message says which key to set.
    pub(crate) fn place(&self, bytes: u64) -> Result<WeightFolder, String> {
        let MappedConfig { folder, max_bytes, .. } = &self.config;
        let failed = |what: String| {
            format!(
                "its weights need a local disk, since ONNX Runtime maps a tensor as large as theirs from a file: {}: {what}",
                folder.display()
            )
        };
        let room = self.room(bytes).ok_or_else(|| {
            let taken = self.taken.load(Relaxed);
            failed(format!(
                "{bytes} bytes beside {taken} of others would be more than `runtime.weights.max_bytes` = {max_bytes}"
            ))
        })?;
        let elsewhere = |e: io::Error| failed(format!("{e}; `runtime.weights.folder` names another folder"));
        fs::create_dir_all(folder).map_err(elsewhere)?;
        let free = free_bytes(folder).map_err(elsewhere)?;
        if free < bytes {
            return Err(failed(format!(
                "{bytes} bytes are wanted and {free} are free: make room, or set `runtime.weights.folder`"
            )));
        }
        let (folder, lock) = own_folder(folder).map_err(elsewhere)?;
        Ok(WeightFolder {
            folder,
            room: Arc::new(room),
            _lock: lock,
        })
    }

    fn room(&self, bytes: u64) -> Option<DiskSpace> {
        let add = |taken: u64| taken.checked_add(bytes).filter(|&all| all <= self.config.max_bytes);
        self.taken.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(DiskSpace {
            bytes,
            taken: Arc::clone(&self.taken),
        })
    }
}

impl WeightFolder {
    /// Path of a file. Its folder exists.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn file(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(path)
    }
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let about = statvfs(folder)?;
    Ok(about.blocks_available().saturating_mul(about.fragment_size()))
}

/// A new folder, and the lock that says that it is in use. Nobody else may look into it.
fn own_folder(parent: &Path) -> io::Result<(TempDir, File)> {
    for _ in 0..MAX_ATTEMPTS {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        // Until here it looked like one that was left behind.
        if lock.try_lock().is_ok() && folder.path().exists() {
            return Ok((folder, lock));
        }
    }
    Err(io::Error::other("other servers keep removing what is made there"))
}

/// Removes folders that no server holds. What cannot be looked at or removed is left.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let left = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Some(lock) = left.then(|| File::open(entry.path()).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue;
        }
        let folder = entry.path();
        match fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed: weights that a server left behind"),
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "weights that a server left behind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(folder: &Path, max_bytes: u64) -> MappedWeights {
        MappedWeights::new(MappedConfig {
            from_bytes: 100,
            folder: folder.to_owned(),
            max_bytes,
        })
    }

    fn folders(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn folders_go_with_their_version_and_room_with_its_sessions() {
        let parent = tempfile::tempdir().unwrap();
        let weights = weights(&parent.path().join("new"), 10);
        assert!(weights.wants(100) && !weights.wants(99));
        let placed = weights.place(6).unwrap();
        fs::write(placed.file("w/a.bin").unwrap(), "weight").unwrap();
        let error = weights.place(5).unwrap_err();
        assert!(
            error.contains("runtime.weights.max_bytes") && error.contains("beside 6"),
            "{error}"
        );
        let room = Arc::clone(&placed.room);
        drop(placed);
        assert_eq!(folders(&parent.path().join("new")), 0);
        assert!(weights.place(5).is_err(), "sessions still map them");
        drop(room);
        assert!(weights.place(10).is_ok());
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("tierlab-weights-left");
        fs::create_dir_all(left.join("w")).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        let first = weights(parent.path(), 10);
        assert!(!left.exists());
        let placed = first.place(1).unwrap();
        let path = placed.file("w.bin").unwrap();
        fs::write(&path, "w").unwrap();
        let _second = weights(parent.path(), 10);
        assert!(path.exists());
        assert_eq!(folders(parent.path()), 2);
    }

    #[test]
    fn a_disk_that_has_no_room_is_named_with_the_key_to_set() {
        let parent = tempfile::tempdir().unwrap();
        let error = weights(parent.path(), u64::MAX).place(u64::MAX).unwrap_err();
        for part in [parent.path().to_str().unwrap(), "are free", "runtime.weights.folder"] {
            assert!(error.contains(part), "{error}");
        }
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = weights(&file, 10).place(1).unwrap_err();
        assert!(error.contains("runtime.weights.folder"), "{error}");
    }
}
