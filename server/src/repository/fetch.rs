//! Objects of the model tier into memory, against their sums.
//!
//! In: an object, and what the manifest says of it. Out: its bytes, with the time it took; never bytes that do not fit.

use super::LoadError;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::model::ManifestFile;
use tierlab_storage::{Object, Tier};

/// Bytes of a large file that are read at a time; twice as much is in memory beside the file.
const CHUNK_BYTES: u64 = 32 << 20;

/// An object as read.
pub(super) struct Fetched<B> {
    pub(super) bytes: B,
    /// Waiting for the tier.
    pub(super) read_time: Duration,
    /// Checking and laying out, as far as the reading did not hide it.
    pub(super) verify_time: Duration,
}

/// Reads an object in one go.
pub(super) async fn read_bytes(
    tier: &dyn Tier,
    object: &Object,
    sum: Option<&ManifestFile>,
) -> Result<Fetched<Bytes>, LoadError> {
    let began = Instant::now();
    let object = look_up(tier, object, sum).await?;
    let bytes = tier.read(&object, 0..object.size).await?.bytes;
    let read_time = began.elapsed();
    if sum.is_some() {
        let hashed = bytes.clone();
        let digest = off_thread(move || Sha256::digest(&hashed)).await?;
        check_sum(&object, sum, &hex::encode(digest))?;
    }
    Ok(Fetched {
        bytes,
        read_time,
        verify_time: began.elapsed() - read_time,
    })
}

/// Reads an object, however large, into one shared piece of memory: chunk by chunk, each checked and put in its place
/// while the next one is on its way, so that the file is in memory once.
pub(super) async fn read_shared(
    tier: &dyn Tier,
    object: &Object,
    sum: Option<&ManifestFile>,
) -> Result<Fetched<Arc<[u8]>>, LoadError> {
    read_in_chunks(tier, object, sum, CHUNK_BYTES).await
}

async fn read_in_chunks(
    tier: &dyn Tier,
    object: &Object,
    sum: Option<&ManifestFile>,
    chunk_bytes: u64,
) -> Result<Fetched<Arc<[u8]>>, LoadError> {
    let began = Instant::now();
    let object = look_up(tier, object, sum).await?;
    let size = usize::try_from(object.size).map_err(|e| LoadError::at(&object.path, e))?;
    let read = async |from: u64| {
        let to = (from + chunk_bytes).min(object.size);
        let bytes = tier.read(&object, from..to).await.map(|read| read.bytes);
        (bytes, Instant::now())
    };
    let mut filling = Filling {
        // Pages that nobody has written to are not copied, they are mapped.
        shared: Arc::from(vec![0; size]),
        at: 0,
        sum: sum.map(|_| Sha256::new()),
    };
    let (mut chunk, mut arrived) = read(0).await;
    let mut read_time = arrived - began;
    let mut turned = arrived;
    while filling.at < size {
        let bytes = chunk?;
        let next = (filling.at + bytes.len()) as u64;
        let filled = off_thread(move || {
            filling.put(&bytes);
            filling
        });
        if next < object.size {
            let (filled, following) = tokio::join!(filled, read(next));
            (chunk, arrived) = following;
            read_time += arrived - turned;
            filling = filled?;
        } else {
            chunk = Ok(Bytes::new());
            filling = filled.await?;
        }
        turned = Instant::now();
    }
    if let Some(hasher) = filling.sum.take() {
        check_sum(&object, sum, &hex::encode(hasher.finalize()))?;
    }
    Ok(Fetched {
        bytes: filling.shared,
        read_time,
        verify_time: began.elapsed().saturating_sub(read_time),
    })
}

/// A file on its way into memory.
struct Filling {
    shared: Arc<[u8]>,
    at: usize,
    sum: Option<Sha256>,
}

impl Filling {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
        let end = self.at + bytes.len();
        // Nobody else has it yet, and the tier gives exactly the range that was asked for.
        if let Some(place) = Arc::get_mut(&mut self.shared).and_then(|shared| shared.get_mut(self.at..end)) {
            place.copy_from_slice(bytes);
        }
        self.at = end;
    }
}

/// Looked up again because the listing may be older than the object.
async fn look_up(tier: &dyn Tier, object: &Object, sum: Option<&ManifestFile>) -> Result<Object, LoadError> {
    let object = tier.stat(&object.path).await?;
    match sum {
        Some(sum) if sum.bytes != object.size => {
            let what = format!(
                "{} bytes, the manifest says {}: truncated or overwritten",
                object.size, sum.bytes
            );
            Err(LoadError::at(&object.path, what))
        }
        _ => Ok(object),
    }
}

fn check_sum(object: &Object, sum: Option<&ManifestFile>, found: &str) -> Result<(), LoadError> {
    match sum {
        Some(sum) if sum.sha256 != found => {
            let what = format!(
                "its sha256 is {found}, the manifest says {}: corrupt or overwritten",
                sum.sha256
            );
            Err(LoadError::at(&object.path, what))
        }
        _ => Ok(()),
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| LoadError::new(format!("a helper thread failed: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_storage::{ObjectPath, TierConfig};

    #[tokio::test]
    async fn large_files_arrive_whole_and_are_held_against_their_sum() {
        let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
        let path = ObjectPath::new("models/m/1/w.bin").unwrap();
        let chunk_bytes = 1000;
        for size in [0, 1, 1000, 2007] {
            let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let object = tier.put(&path, Bytes::from(data.clone()).into()).await.unwrap();
            let mut sum = ManifestFile {
                path: "1/w.bin".into(),
                bytes: size as u64,
                sha256: hex::encode(Sha256::digest(&data)),
            };
            let read = read_in_chunks(&*tier, &object, Some(&sum), chunk_bytes).await.unwrap();
            assert!(read.bytes[..] == data[..]);
            assert!(read_bytes(&*tier, &object, Some(&sum)).await.unwrap().bytes[..] == data[..]);
            sum.sha256 = hex::encode(Sha256::digest(b"other"));
            let error = read_in_chunks(&*tier, &object, Some(&sum), chunk_bytes)
                .await
                .err()
                .unwrap();
            assert!(error.message.contains("sha256") && error.message.contains("models/m/1/w.bin"));
            sum.bytes += 1;
            let error = read_in_chunks(&*tier, &object, Some(&sum), chunk_bytes)
                .await
                .err()
                .unwrap();
            assert!(error.message.contains("truncated"), "{error}");
        }
    }
}
