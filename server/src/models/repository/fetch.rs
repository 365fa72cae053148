//! Objects of the model tier, read into memory or onto a local disk and verified by their checksums.
//!
//! In: an object, and its manifest entry. Out: its bytes, never bytes that do not match. Waiting for the tier counts as
//! `read`; verifying and laying out as `verify`, unless it overlaps with reading. The files of a version's weights go
//! into memory, or to a local disk, from which ONNX Runtime maps them.

use crate::error::LoadError;
use crate::inference::runtime::{MappedWeights, Weights};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::model::{MODEL_FILE, ManifestFile};
use tierlab_protocol::metadata::LoadSeconds;
use tierlab_storage::{Object, Tier};

/// Maximum size of a text file: a config, a manifest or names of classes.
const TEXT_BYTES: u64 = 16 << 20;
/// Bytes of a large file read at a time; twice as much is in memory besides the file.
const CHUNK_BYTES: u64 = 32 << 20;

/// Manifest entry of a file, with its checksum, if the manifest lists it.
pub(super) type Sum<'a> = Option<&'a ManifestFile>;

/// Reads a text file, which is small.
pub(super) async fn read_text(tier: &dyn Tier, object: &Object, sum: Sum<'_>) -> Result<Bytes, LoadError> {
    let object = stat_again(tier, object, sum).await?;
    if object.size > TEXT_BYTES {
        let message = format!("text file of {} bytes exceeds the limit of {TEXT_BYTES}", object.size);
        return Err(LoadError::at(&object.path, message));
    }
    read_bytes(tier, &object, sum, &mut LoadSeconds::default()).await
}

/// Reads an object in a single read.
pub(super) async fn read_bytes(
    tier: &dyn Tier,
    object: &Object,
    sum: Sum<'_>,
    seconds: &mut LoadSeconds,
) -> Result<Bytes, LoadError> {
    let began = Instant::now();
    let object = stat_again(tier, object, sum).await?;
    let bytes = tier.read(&object, 0..object.size).await?.bytes;
    let read_time = began.elapsed();
    if sum.is_some() {
        let hashed = bytes.clone();
        let digest = run_blocking(move || Sha256::digest(&hashed)).await?;
        check_sum(&object, sum, &hex::encode(digest))?;
    }
    seconds.read += read_time.as_secs_f64();
    seconds.verify += (began.elapsed() - read_time).as_secs_f64();
    Ok(bytes)
}

/// Error of the local disk, not of the model.
fn io_error(path: &Path, error: &io::Error) -> LoadError {
    let hint = "set `runtime.weights.folder` to another folder";
    let detailed = format!("{}: {error}; {hint}", path.display());
    LoadError::new(format!("cannot store weights on the local disk: {error}; {hint}"))
        .with_detail(detailed)
        .transient()
}

/// Destination of a file's chunks, in order.
trait Sink: Send + 'static {
    fn put(&mut self, at: usize, bytes: &[u8]) -> io::Result<()>;
}

impl Sink for Arc<[u8]> {
    fn put(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        // Not shared yet, and the tier returns exactly the requested range.
        let destination = Arc::get_mut(self).and_then(|shared| shared.get_mut(at..at + bytes.len()));
        destination.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(())
    }
}

impl Sink for File {
    fn put(&mut self, _: usize, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
}

/// Memory for an object.
fn shared(object: &Object) -> Result<Arc<[u8]>, LoadError> {
    let size = usize::try_from(object.size).map_err(|e| LoadError::at(&object.path, e))?;
    // Needed twice for a moment. Allocated fallibly, because the tier may have reported any size.
    if Vec::<u8>::new().try_reserve_exact(size.saturating_mul(2)).is_err() {
        return Err(LoadError::at(&object.path, format!("no memory for {size} bytes")).transient());
    }
    // Unwritten zero pages are mapped, not copied.
    Ok(Arc::from(vec![0; size]))
}

/// Creates a file for an object.
fn new_file(path: &Path) -> impl FnOnce(&Object) -> Result<File, LoadError> {
    move |_| File::create_new(path).map_err(|e| io_error(path, &e))
}

/// Reads a large object in chunks. Each is verified and stored while the next one is read, so a file in memory exists
/// only once, and only a few chunks of a file on disk are in memory.
async fn read_in_chunks<P: Sink>(
    tier: &dyn Tier,
    object: &Object,
    sum: Sum<'_>,
    destination: impl FnOnce(&Object) -> Result<P, LoadError>,
    chunk_bytes: u64,
    seconds: &mut LoadSeconds,
) -> Result<P, LoadError> {
    let began = Instant::now();
    let object = stat_again(tier, object, sum).await?;
    let read = async |from: u64| {
        let to = (from + chunk_bytes).min(object.size);
        let bytes = tier.read(&object, from..to).await.map(|read| read.bytes);
        (bytes, Instant::now())
    };
    let mut writer = ChunkWriter {
        destination: destination(&object)?,
        at: 0,
        sum: sum.map(|_| Sha256::new()),
    };
    let (mut chunk, mut arrived_at) = read(0).await;
    let mut read_time = arrived_at - began;
    let mut stored_at = arrived_at;
    while (writer.at as u64) < object.size {
        let bytes = chunk?;
        let next = (writer.at + bytes.len()) as u64;
        let filled = run_blocking(move || writer.put(&bytes).map(|()| writer));
        if next < object.size {
            let (filled, following) = tokio::join!(filled, read(next));
            (chunk, arrived_at) = following;
            read_time += arrived_at - stored_at;
            writer = filled?.map_err(|e| put_failed(&object, &e))?;
        } else {
            chunk = Ok(Bytes::new());
            writer = filled.await?.map_err(|e| put_failed(&object, &e))?;
        }
        stored_at = Instant::now();
    }
    if let Some(hasher) = writer.sum.take() {
        check_sum(&object, sum, &hex::encode(hasher.finalize()))?;
    }
    seconds.read += read_time.as_secs_f64();
    seconds.verify += began.elapsed().saturating_sub(read_time).as_secs_f64();
    Ok(writer.destination)
}

/// File being written.
struct ChunkWriter<P> {
    destination: P,
    at: usize,
    sum: Option<Sha256>,
}

impl<P: Sink> ChunkWriter<P> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(sum) = &mut self.sum {
            sum.update(bytes);
        }
        self.destination.put(self.at, bytes)?;
        self.at += bytes.len();
        Ok(())
    }
}

fn put_failed(object: &Object, error: &io::Error) -> LoadError {
    let message = format!("cannot store it: {error}; see `runtime.weights` in server.toml");
    LoadError::at(&object.path, message).transient()
}

/// Looks up an object again, because the listing may be outdated.
async fn stat_again(tier: &dyn Tier, object: &Object, sum: Sum<'_>) -> Result<Object, LoadError> {
    let object = tier.stat(&object.path).await?;
    match sum {
        Some(sum) if sum.bytes != object.size => {
            let (actual, expected) = (object.size, sum.bytes);
            let message = format!("size is {actual} bytes, the manifest has {expected}: truncated or overwritten");
            Err(LoadError::at(&object.path, message))
        }
        _ => Ok(object),
    }
}

fn check_sum(object: &Object, sum: Sum<'_>, found: &str) -> Result<(), LoadError> {
    match sum {
        Some(sum) if sum.sha256 != found => {
            let expected = &sum.sha256;
            let message = format!("sha256 is {found}, the manifest has {expected}: corrupt or overwritten");
            Err(LoadError::at(&object.path, message))
        }
        _ => Ok(()),
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| LoadError::new(format!("a helper thread failed: {e}")))
}

/// File of weights on the tier.
pub(super) struct WeightFile<'a> {
    /// Name in the graph.
    pub(super) name: String,
    pub(super) object: &'a Object,
    pub(super) sum: Sum<'a>,
}

/// Reads every file into memory.
pub(super) async fn to_memory(
    tier: &dyn Tier,
    files: &[WeightFile<'_>],
    seconds: &mut LoadSeconds,
) -> Result<Weights, LoadError> {
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let shared = read_in_chunks(tier, file.object, file.sum, shared, CHUNK_BYTES, seconds).await?;
        read.push((file.name.clone(), shared));
    }
    Ok(Weights::InMemory(read))
}

/// Reads every file to a folder on a local disk, and writes the graph beside them.
pub(super) async fn to_disk(
    tier: &dyn Tier,
    files: &[WeightFile<'_>],
    object: &Object,
    graph: &[u8],
    mapped: &MappedWeights,
    seconds: &mut LoadSeconds,
) -> Result<Weights, LoadError> {
    let began = Instant::now();
    let bytes = files.iter().map(|file| file.object.size).sum::<u64>();
    let folder = mapped.reserve(bytes.saturating_add(object.size));
    let folder = folder.map_err(|message| LoadError::at(&object.path, message).transient())?;
    let mut reading = LoadSeconds::default();
    for file in files {
        let path = folder.file(&file.name).map_err(|e| io_error(file.name.as_ref(), &e))?;
        read_in_chunks(tier, file.object, file.sum, new_file(&path), CHUNK_BYTES, &mut reading).await?;
    }
    let path = folder.file(MODEL_FILE).map_err(|e| io_error(MODEL_FILE.as_ref(), &e))?;
    std::fs::write(&path, graph).map_err(|e| io_error(&path, &e))?;
    seconds.read += reading.read;
    seconds.place += (began.elapsed().as_secs_f64() - reading.read).max(0.0);
    Ok(Weights::Mapped(Arc::new(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_storage::{ObjectPath, TierConfig};

    #[tokio::test]
    async fn large_files_arrive_whole_and_are_held_against_their_sum() {
        let tier = tierlab_storage::open(&TierConfig::Memory { root: None }).await.unwrap();
        let path = ObjectPath::new("models/m/1/w.bin").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (chunk_bytes, mut seconds) = (1000, LoadSeconds::default());
        for size in [0, 1, 1000, 2007] {
            let data: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            let object = tier.put(&path, Bytes::from(data.clone()).into()).await.unwrap();
            let mut sum = ManifestFile {
                path: "1/w.bin".into(),
                bytes: size as u64,
                sha256: hex::encode(Sha256::digest(&data)),
            };
            let read = read_in_chunks(&*tier, &object, Some(&sum), shared, chunk_bytes, &mut seconds)
                .await
                .unwrap();
            assert!(read[..] == data[..]);
            let read = read_bytes(&*tier, &object, Some(&sum), &mut seconds).await.unwrap();
            assert!(read[..] == data[..]);
            let file = folder.path().join(format!("{size}"));
            let read = async |seconds: &mut LoadSeconds| {
                read_in_chunks(&*tier, &object, Some(&sum), new_file(&file), chunk_bytes, seconds).await
            };
            read(&mut seconds).await.unwrap();
            assert!(std::fs::read(&file).unwrap() == data);
            assert!(read(&mut seconds).await.err().unwrap().transient, "it is there");
            sum.sha256 = hex::encode(Sha256::digest(b"other"));
            let error = read_in_chunks(&*tier, &object, Some(&sum), shared, chunk_bytes, &mut seconds)
                .await
                .err()
                .unwrap();
            assert!(error.message.contains("sha256") && error.message.contains("models/m/1/w.bin"));
            sum.bytes += 1;
            let error = read_in_chunks(&*tier, &object, Some(&sum), shared, chunk_bytes, &mut seconds)
                .await
                .err()
                .unwrap();
            assert!(error.message.contains("truncated"), "{error}");
        }
    }
}
