//! Data to read: objects of seeded content, written for a run and removed after it. In: a tier and sizes. Out: objects
//! whose every byte is known.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierlab_storage::conformance::content;
use tierlab_storage::{Body, ErrorKind, Object, ObjectPath, StorageError, Tier};

/// Maximum objects written at the same time.
const AT_A_TIME: usize = 16;
/// Objects removed at a time.
const REMOVED_AT_A_TIME: usize = 64;
/// Bytes of content generated at a time.
const PIECE: u64 = 1 << 20;
/// Checked bytes at the start of each access: enough to detect a misplaced read, cheap enough for every access.
const CHECKED: usize = 8;

/// Maximum tries of a call with transient errors, because the measured tier may fail now and then.
const TRIES: u32 = 8;
/// First pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns a name that no other run has, on this machine or another that measures the same tier: process ids repeat
/// across containers.
pub(crate) fn name_of_run() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let chance = RandomState::new().hash_one(since) as u32;
    format!("{}-{:x}-{chance:08x}", std::process::id(), since.as_secs())
}

/// Objects of equal length.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    pub(crate) objects: Arc<Vec<Object>>,
    pub(crate) file_bytes: u64,
    seed: u64,
}

impl Data {
    /// Writes `files` objects into a folder of the tier that is empty or missing.
    ///
    /// # Errors
    /// The folder holds something, or the tier refuses.
    pub(crate) async fn write(tier: &Arc<dyn Tier>, folder: &str, files: u32, size: u64, seed: u64) -> Result<Self> {
        let file_bytes = size / u64::from(files);
        let prefix = ObjectPath::new(folder)?;
        let is_empty = match patiently(async || tier.list(Some(&prefix)).await).await {
            Ok(there) => there.is_empty(),
            // A bucket that may not be listed: this run's name is unique anyway.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Denied | ErrorKind::Unsupported
                ) =>
            {
                true
            }
            Err(error) => return Err(error).context("cannot see whether its folder is empty"),
        };
        ensure!(is_empty, "{folder} is not empty: nothing is written over what is there");
        let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
        let scratch = scratch.path();
        let put = |number: u32| async move {
            let path = ObjectPath::new(&format!("{folder}/{number:06}.bin"))?;
            let body = body(scratch, number, seed, file_bytes)?;
            let object = patiently(async || tier.put(&path, body.clone()).await).await;
            let object = object.context("cannot write the data to measure");
            let _ = std::fs::remove_file(scratch.join(number.to_string()));
            object
        };
        let objects: Result<Vec<Object>> = stream::iter(0..files).map(put).buffered(AT_A_TIME).try_collect().await;
        let objects = objects?;
        Ok(Self {
            objects: Arc::new(objects),
            file_bytes,
            seed,
        })
    }

    /// Returns the expected bytes of a file.
    pub(crate) fn bytes(&self, file: u32, range: std::ops::Range<u64>) -> Vec<u8> {
        content(self.seed ^ u64::from(file), range)
    }

    /// Checks the first bytes of a read at an offset.
    pub(crate) fn looks_right(&self, file: u32, offset: u64, bytes: &[u8]) -> bool {
        let checked = bytes.len().min(CHECKED);
        bytes[..checked] == self.bytes(file, offset..offset + checked as u64)
    }
}

/// Removes objects from a tier. Tries all of them, and returns the first error.
pub(crate) async fn remove(tier: &Arc<dyn Tier>, objects: impl IntoIterator<Item = Object>) -> Result<()> {
    let delete = |object: Object| async move { patiently(async || tier.delete(&object.path).await).await };
    let gone = stream::iter(objects).map(delete).buffer_unordered(REMOVED_AT_A_TIME);
    let gone: Vec<_> = gone.collect().await;
    gone.into_iter()
        .collect::<Result<(), _>>()
        .context("cannot remove what was written")
}

/// Retries a call while its error is transient.
async fn patiently<T>(call: impl AsyncFn() -> Result<T, StorageError>) -> Result<T, StorageError> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match call().await {
            Err(error) if error.kind().is_transient() => tokio::time::sleep(pause).await,
            ended => return ended,
        }
        pause *= 2;
    }
    call().await
}

/// Content of an object: in memory if it is small, else in a temporary file.
pub(crate) fn body(scratch: &Path, number: u32, seed: u64, bytes: u64) -> Result<Body> {
    let seed = seed ^ u64::from(number);
    if bytes <= PIECE {
        return Ok(Body::Bytes(content(seed, 0..bytes).into()));
    }
    let path = scratch.join(number.to_string());
    let mut file = std::fs::File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut at = 0;
    while at < bytes {
        let end = (at + PIECE).min(bytes);
        file.write_all(&content(seed, at..end))
            .with_context(|| format!("cannot write {}", path.display()))?;
        at = end;
    }
    Ok(Body::File(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_process_number_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = (0..100).map(|_| name_of_run()).collect();
        assert_eq!(names.len(), 100);
        assert!(
            names
                .iter()
                .all(|name| ObjectPath::new(&format!("storage-bench/{name}.bin")).is_ok())
        );
    }

    #[tokio::test]
    async fn nothing_is_written_over_what_is_there() {
        let config = tierlab_storage::TierConfig::parse("memory", "kind = \"memory\"\n").unwrap();
        let tier = tierlab_storage::open(&config).await.unwrap();
        let users = ObjectPath::new("storage-bench/mine/000000.bin").unwrap();
        tier.put(&users, Body::Bytes("kept".into())).await.unwrap();
        let error = Data::write(&tier, "storage-bench/mine", 1, 4096, 1).await.unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        let object = tier.stat(&users).await.unwrap();
        assert_eq!(tier.read(&object, 0..object.size).await.unwrap().bytes, "kept");
    }
}
