//! Weights on a local disk, which ONNX Runtime maps into memory: its only way to load a tensor of 2 GiB or more.
//!
//! In: a folder, the tensor size from which weights are mapped, and a maximum of bytes. Out: a folder for the files of
//! a version, removed when the version's sessions are built, and its disk space, reserved as long as sessions map the
//! files. Even files on a local disk are copied: the originals may be overwritten in place, which would change a served
//! model, or truncated, which would end the process.

use anyhow::{Result, anyhow};
use nix::sys::statvfs::statvfs;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tempfile::TempDir;

/// Size from which ONNX Runtime does not load a tensor from memory, because it makes a protobuf message of it.
pub(crate) const NEVER_FROM_MEMORY_BYTES: u64 = 1 << 31;
/// Name prefix of the folders.
const PREFIX: &str = "tierlab-weights-";
/// Maximum attempts to create a folder, which another server may remove as left over from a crash.
const MAX_ATTEMPTS: usize = 8;

/// `[runtime.weights]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MappedConfig {
    /// Tensor size in bytes from which a version's weights are mapped; at most [`NEVER_FROM_MEMORY_BYTES`].
    #[serde(rename = "map_from_bytes")]
    pub(crate) from_bytes: u64,
    /// Parent folder (default: the folder of temporary files).
    pub(crate) folder: PathBuf,
    /// Maximum bytes of all mapped weights.
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
    used: Arc<AtomicU64>,
}

/// Disk space, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    pub(crate) bytes: u64,
    used: Arc<AtomicU64>,
}

impl Drop for DiskSpace {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// Folder of a version's files. Dropping it removes them; mapped files stay until their sessions end.
#[derive(Debug)]
pub(crate) struct WeightFolder {
    folder: TempDir,
    /// Disk space of its files, held while they are mapped.
    pub(crate) disk_space: Arc<DiskSpace>,
    /// Locked while the folder is in use, so that no other server removes it as left over from a crash.
    _lock: File,
}

impl MappedWeights {
    /// Removes folders left over from a crash; a missing parent folder is not an error.
    pub(crate) fn new(config: MappedConfig) -> Self {
        remove_leftovers(&config.folder);
        Self {
            config,
            used: Arc::default(),
        }
    }

    /// True if a version whose largest tensor has `largest` bytes is mapped.
    pub(crate) fn applies_to(&self, largest: u64) -> bool {
        largest >= self.config.from_bytes
    }

    /// Creates a folder for files of `bytes` bytes in total.
    ///
    /// # Errors
    /// Fails if that exceeds the maximum or the free space, or if the folder cannot be created; names the key to set.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<WeightFolder> {
        let MappedConfig { folder, max_bytes, .. } = &self.config;
        let failed = |reason: String| {
            anyhow!(
                "its weights need a local disk, because ONNX Runtime maps such large tensors from a file: {}: {reason}",
                folder.display()
            )
        };
        let add = |used: u64| used.checked_add(bytes).filter(|all| all <= max_bytes);
        let disk_space = self.used.fetch_update(Relaxed, Relaxed, add).map_err(|used| {
            failed(format!(
                "{bytes} bytes in addition to {used} exceed `runtime.weights.max_bytes` = {max_bytes}"
            ))
        });
        let disk_space = disk_space.map(|_| DiskSpace {
            bytes,
            used: Arc::clone(&self.used),
        })?;
        let disk_error = |e: io::Error| failed(format!("{e}; set `runtime.weights.folder` to another folder"));
        fs::create_dir_all(folder).map_err(disk_error)?;
        let stats = statvfs(folder).map_err(|e| disk_error(e.into()))?;
        let free = stats.blocks_available().saturating_mul(stats.fragment_size());
        if free < bytes {
            return Err(failed(format!(
                "needs {bytes} bytes, but only {free} are free: free disk space or set `runtime.weights.folder`"
            )));
        }
        let (folder, lock) = create_locked_folder(folder).map_err(disk_error)?;
        Ok(WeightFolder {
            folder,
            disk_space: Arc::new(disk_space),
            _lock: lock,
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

/// Creates a folder and the lock that marks it as in use. Other users have no access.
fn create_locked_folder(parent: &Path) -> io::Result<(TempDir, File)> {
    for _ in 0..MAX_ATTEMPTS {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        // Until here another server may have removed it as left over.
        if lock.try_lock().is_ok() && folder.path().exists() {
            return Ok((folder, lock));
        }
    }
    Err(io::Error::other("other servers keep removing new folders"))
}

/// Removes folders that no server holds. Inaccessible folders are skipped.
fn remove_leftovers(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let is_leftover = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Some(lock) = is_leftover.then(|| File::open(entry.path()).ok()).flatten() else {
            continue;
        };
        if lock.try_lock().is_err() {
            continue;
        }
        let folder = entry.path();
        match fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed weights left behind by a server"),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "cannot remove weights left behind by a server");
            }
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
        assert!(weights.applies_to(100) && !weights.applies_to(99));
        let weight_folder = weights.reserve(6).unwrap();
        fs::write(weight_folder.file("w/a.bin").unwrap(), "weight").unwrap();
        let error = weights.reserve(5).unwrap_err().to_string();
        assert!(
            error.contains("runtime.weights.max_bytes") && error.contains("in addition to 6"),
            "{error}"
        );
        let disk_space = Arc::clone(&weight_folder.disk_space);
        drop(weight_folder);
        assert_eq!(folders(&parent.path().join("new")), 0);
        assert!(weights.reserve(5).is_err(), "sessions still map them");
        drop(disk_space);
        assert!(weights.reserve(10).is_ok());
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let leftover = parent.path().join("tierlab-weights-left");
        fs::create_dir_all(leftover.join("w")).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        let first = weights(parent.path(), 10);
        assert!(!leftover.exists());
        let weight_folder = first.reserve(1).unwrap();
        let path = weight_folder.file("w.bin").unwrap();
        fs::write(&path, "w").unwrap();
        let _second = weights(parent.path(), 10);
        assert!(path.exists());
        assert_eq!(folders(parent.path()), 2);
    }

    #[test]
    fn a_disk_that_has_no_room_is_named_with_the_key_to_set() {
        let parent = tempfile::tempdir().unwrap();
        let error = weights(parent.path(), u64::MAX).reserve(u64::MAX).unwrap_err();
        for part in [parent.path().to_str().unwrap(), "are free", "runtime.weights.folder"] {
            assert!(error.to_string().contains(part), "{error}");
        }
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = weights(&file, 10).reserve(1).unwrap_err().to_string();
        assert!(error.contains("runtime.weights.folder"), "{error}");
    }
}
