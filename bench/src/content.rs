//! Data to read: objects of seeded content, written for a run and removed after it. In: a tier and sizes. Out: objects
//! whose every byte is known.

use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, StorageError, Tier};

/// Maximum number of objects written at the same time.
pub(crate) const MAX_WRITES: u32 = 16;
/// Maximum number of objects removed at the same time.
const MAX_DELETES: usize = 64;
/// Bytes of content generated at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Checked bytes at the start of each access: enough to detect a misplaced read, cheap enough for every access.
pub(crate) const CHECKED_BYTES: usize = 8;

/// Maximum tries of a call with transient errors, because the measured tier may fail occasionally.
const MAX_TRIES: u32 = 8;
/// First pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Returns a name that no other run has, on this machine or another that measures the same tier: process ids repeat
/// across containers.
pub(crate) fn unique_run_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let random = RandomState::new().hash_one(since) as u32;
    format!("{}-{:x}-{random:08x}", std::process::id(), since.as_secs())
}

/// Objects of equal length.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    pub(crate) objects: Arc<Vec<Object>>,
    pub(crate) file_bytes: u64,
    /// Seed of the content; `None` for existing objects, whose content is unknown.
    pub(crate) seed: Option<u64>,
}

impl Data {
    /// Writes `files` objects of `size` bytes in all into a folder of this run.
    ///
    /// # Errors
    /// The tier fails, or an interrupt.
    pub(crate) async fn write(
        tier: &Arc<dyn Tier>,
        folder: &str,
        (files, size): (u32, u64),
        seed: u64,
        stop: &Stop,
    ) -> Result<Self> {
        let file_bytes = size / u64::from(files);
        let put = |number: u32| async move {
            let path = ObjectPath::new(&format!("{folder}/{number:06}.bin"))?;
            write(tier.as_ref(), &path, seed ^ u64::from(number), file_bytes, stop).await
        };
        let written = stream::iter(0..files).map(put).buffered(MAX_WRITES as usize);
        Ok(Self::of(written.try_collect().await?, Some(seed)))
    }

    /// Creates data of at least one object.
    pub(crate) fn of(objects: Vec<Object>, seed: Option<u64>) -> Self {
        Self {
            file_bytes: objects[0].size,
            objects: Arc::new(objects),
            seed,
        }
    }

    /// Returns the expected bytes of a file; zeros if the content is unknown.
    pub(crate) fn bytes(&self, file: u32, range: Range<u64>) -> Vec<u8> {
        match self.seed {
            Some(seed) => content(seed ^ u64::from(file), range),
            None => vec![0; (range.end - range.start) as usize],
        }
    }

    /// Returns the CRC-32C of a whole file.
    pub(crate) fn sum(&self, file: u32) -> u32 {
        let starts = (0..self.file_bytes).step_by(PIECE_BYTES as usize);
        starts.fold(0, |sum, at| {
            crc32c::crc32c_append(sum, &self.bytes(file, at..(at + PIECE_BYTES).min(self.file_bytes)))
        })
    }

    /// Checks that a read returned `len` bytes, and that the first of them are right if the content is known.
    ///
    /// # Errors
    /// Bytes differ from those written.
    pub(crate) fn check(&self, file: u32, range: &Range<u64>, bytes: &[u8], len: usize) -> Result<()> {
        let checked = bytes.len().min(CHECKED_BYTES);
        let expected = || self.bytes(file, range.start..range.start + checked as u64);
        let is_equal = len as u64 == range.end - range.start && (self.seed.is_none() || bytes[..checked] == expected());
        let path = &self.objects[file as usize].path;
        ensure!(is_equal, "{path}: the bytes {range:?} are wrong");
        Ok(())
    }
}

/// Writes an object of seeded content: from memory if it is small, else from a temporary file, which is on a local tier's disk.
///
/// # Errors
/// The tier fails, or an interrupt.
pub(crate) async fn write(tier: &dyn Tier, path: &ObjectPath, seed: u64, bytes: u64, stop: &Stop) -> Result<Object> {
    let put = async |body: Body| {
        let object = with_retries(async || tier.put(path, body.clone()).await).await;
        if object.is_err() {
            tierlab_storage::cleaned_up().await;
        }
        object.context("cannot write the data to measure")
    };
    let piece = |at: u64| {
        ensure!(!stop.is_requested(), "interrupted before all data was written");
        Ok(content(seed, at..(at + PIECE_BYTES).min(bytes)))
    };
    if bytes <= PIECE_BYTES {
        return put(Body::Bytes(piece(0)?.into())).await;
    }
    let root = PathBuf::from(tier.info().location);
    let folder = if root.is_dir() { root } else { std::env::temp_dir() };
    let cannot = || {
        format!(
            "cannot write {bytes} bytes of data to a temporary file in {}",
            folder.display()
        )
    };
    let mut file = tempfile::NamedTempFile::new_in(&folder).with_context(cannot)?;
    for at in (0..bytes).step_by(PIECE_BYTES as usize) {
        file.write_all(&piece(at)?).with_context(cannot)?;
    }
    put(Body::File(file.path().to_owned())).await
}

/// Removes the objects that still exist on a tier, and their folders unless others use them. Tries all objects, and
/// returns the first error.
pub(crate) async fn remove(tier: &Arc<dyn Tier>, objects: impl IntoIterator<Item = Object>) -> Result<()> {
    let mut folders = BTreeSet::new();
    let objects = objects.into_iter().inspect(|object| {
        let path = object.path.as_str();
        folders.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
    });
    let delete = |object: Object| async move {
        let deleted = with_retries(async || tier.delete(&object.path).await).await;
        deleted.or_else(|error| match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
    };
    let done = stream::iter(objects).map(delete).buffer_unordered(MAX_DELETES);
    let done: Vec<_> = done.collect().await;
    tierlab_storage::cleaned_up().await;
    // The longest first, on a server or in a local root. A folder that is not empty is refused.
    for folder in folders.iter().rev() {
        _ = tier.remove_folder(&ObjectPath::new(folder)?).await;
    }
    let done: Result<(), StorageError> = done.into_iter().collect();
    done.context("cannot remove the written objects")
}

/// Retries a call while its error is transient.
pub(crate) async fn with_retries<T>(call: impl AsyncFn() -> Result<T, StorageError>) -> Result<T, StorageError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..MAX_TRIES {
        match call().await {
            Err(error) if error.kind().is_transient() => tokio::time::sleep(pause).await,
            ended => return ended,
        }
        pause *= 2;
    }
    call().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_storage::tiers::memory::MemoryTier;

    #[tokio::test]
    async fn an_interrupt_ends_the_writing_of_data() {
        let tier: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let stop = Stop::default();
        stop.request();
        let written = Data::write(&tier, "bench/x", (1000, 4_096_000), 1, &stop).await;
        assert!(written.unwrap_err().to_string().contains("interrupted"));
        assert!(tier.list(None).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn an_interrupt_ends_the_writing_of_a_large_object() {
        let tier: Arc<dyn Tier> = Arc::new(MemoryTier::default());
        let stop = Stop::default();
        let later = stop.clone();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            later.request();
        });
        // Takes seconds.
        let written = Data::write(&tier, "bench/x", (1, 16 << 30), 1, &stop).await;
        interrupt.join().unwrap();
        assert!(written.unwrap_err().to_string().contains("interrupted"));
        assert!(tier.list(None).await.unwrap().is_empty());
    }

    #[test]
    fn runs_of_one_process_number_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = (0..100).map(|_| unique_run_name()).collect();
        assert_eq!(names.len(), 100);
        assert!(
            names
                .iter()
                .all(|name| ObjectPath::new(&format!("storage-bench/{name}.bin")).is_ok())
        );
    }
}
