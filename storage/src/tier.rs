//! Trait of all tiers and wrappers, and the types of its calls.

use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tierlab_gds::{DeviceBytes, DeviceError};
use tierlab_protocol::via::ViaSet;

/// Bytes of a single range.
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// Exactly the requested range.
    pub bytes: Bytes,
    /// Cost of the read.
    pub cost: ReadCost,
}

/// Bytes of many ranges.
#[derive(Debug, Clone, Default)]
pub struct ReadMany {
    /// Bytes of each range, in request order.
    pub parts: Vec<Bytes>,
    /// Cost of all parts together.
    pub cost: ReadCost,
}

impl ReadMany {
    /// Converts the result of a single range.
    pub(crate) fn into_single(mut self) -> Read {
        let bytes = self.parts.pop().unwrap_or_default();
        Read { bytes, cost: self.cost }
    }
}

/// Description of a tier, for results and logs. Never holds credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierInfo {
    /// Kind, such as `nvme` or `s3`.
    pub kind: &'static str,
    /// Root, URL or endpoint.
    pub location: String,
    /// Wrappers around the tier, outermost first.
    pub wrappers: Vec<String>,
    /// Notes to show beside every figure: `buffered: tmpfs refuses O_DIRECT`, `embedded origin`.
    pub notes: Vec<String>,
}

impl TierInfo {
    /// Description of a tier without wrappers.
    pub(crate) fn new(kind: &'static str, location: impl Into<String>, notes: Vec<String>) -> Self {
        Self {
            kind,
            location: location.into(),
            wrappers: Vec::new(),
            notes,
        }
    }
}

/// Content of a put.
#[derive(Debug, Clone)]
pub enum Body {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A local file, streamed.
    File(PathBuf),
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// Store of objects.
///
/// Every method may be called from many tasks at once, and its future may be dropped at any moment without harm. Errors
/// name the object.
#[async_trait]
pub trait Tier: Send + Sync + 'static {
    /// Description of this tier.
    fn info(&self) -> TierInfo;

    /// Looks up an object, and thereby selects the version for reads.
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError>;

    /// Reads one range. An empty range inside the object succeeds and reads nothing; a range past the end is
    /// [`ErrorKind::OutOfRange`]. Never returns fewer bytes than requested.
    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        Ok(self.read_many(object, &[range]).await?.into_single())
    }

    /// Reads many ranges as a single request to the tier: all of them, or an error.
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError>;

    /// Reads an object without a prior look-up; fails with [`ErrorKind::Corrupt`] if its size is not `bytes`. A look-up
    /// before the read counts as a request, and its time as the device's. Tiers whose replies give an object's size need
    /// none.
    async fn read_whole(&self, path: &ObjectPath, bytes: u64) -> Result<Read, StorageError> {
        let began = Instant::now();
        let object = self.stat(path).await?;
        let look_up = began.elapsed();
        check_size(path, object.size, bytes)?;
        let mut read = self.read(&object, 0..bytes).await?;
        read.cost.requests += 1;
        read.cost.device += look_up;
        Ok(read)
    }

    /// Tier below a wrapper, which handles all methods that the wrapper does not override; `None` for a tier itself.
    fn inner(&self) -> Option<&dyn Tier> {
        None
    }

    /// Explains why reads that took these paths differ from the tier's configuration; `None` if they agree.
    fn shortfall(&self, used: ViaSet) -> Option<String> {
        self.inner()?.shortfall(used)
    }

    /// Cost of reads that failed or were cancelled, since the last call. Counts everything that reached the tier. Returns
    /// `None` if no cost is lost or it is unknown.
    fn take_unreported(&self) -> Option<ReadCost> {
        self.inner()?.take_unreported()
    }

    /// Reads into device memory; `None` if not supported.
    fn device(&self) -> Option<&dyn DeviceReads> {
        None
    }

    /// Drops wrappers' copies of these ranges of a version because the bytes are damaged. The next read goes to the
    /// tier itself. Does nothing for a tier without copies.
    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        if let Some(inner) = self.inner() {
            inner.forget(object, ranges).await;
        }
    }

    /// Lists the objects whose path begins with the segments of `prefix` (all objects if `None`), in order of path.
    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let read_only = || read_only(prefix.map_or("", ObjectPath::as_str));
        self.inner().ok_or_else(read_only)?.list(prefix).await
    }

    /// Writes a whole object, replacing an existing one. Readers see the old or the new version, never a mix.
    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let inner = self.inner().ok_or_else(|| read_only(path.as_str()))?;
        inner.put(path, body).await
    }

    /// Number of requests that write an object of this size, without retries.
    fn put_requests(&self, bytes: u64) -> u32 {
        self.inner().map_or(1, |inner| inner.put_requests(bytes))
    }

    /// Removes an object.
    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.inner().ok_or_else(|| read_only(path.as_str()))?.delete(path).await
    }

    /// Removes an empty folder of a server or of a local root. The default, for tiers without folders, does nothing.
    async fn remove_folder(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let Some(inner) = self.inner() else { return Ok(()) };
        inner.remove_folder(path).await
    }
}

/// Error of a tier that can only be read.
fn read_only(object: &str) -> StorageError {
    ErrorKind::Unsupported.error(object, "the tier does not support listing, writing or removing")
}

/// Checks an object's size.
pub(crate) fn check_size(path: &ObjectPath, found: u64, wanted: u64) -> Result<(), StorageError> {
    if found == wanted {
        return Ok(());
    }
    let detail = format!("has {found} bytes instead of {wanted}: truncated or replaced");
    Err(ErrorKind::Corrupt.error(path, detail))
}

/// Cost of a read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCost {
    /// Paths taken.
    pub via: ViaSet,
    /// Wait for a slot, a connection or the engine: the longest of the parts.
    pub queue: Duration,
    /// Time at the device or the remote side: the longest of the parts.
    pub device: Duration,
    /// Copies in this process after arrival: the sum.
    pub copy: Duration,
    /// Cache look-ups: the sum. Zero without a cache.
    pub cache: Duration,
    /// Bytes transferred, including over-read and headers of ranges.
    pub wire_bytes: u64,
    /// Requests to the tier's device or server (SQEs, GETs, READs). A stage's reads of its own folder are excluded here
    /// and from bytes, retries and hedges.
    pub requests: u32,
    /// Retries after a failure, included in `requests`.
    pub retries: u32,
    /// Hedged requests, included in `requests`: sent a second time because the first reply was slow.
    pub hedges: u32,
    /// Blocks found in a cache.
    pub cache_hits: u32,
    /// Blocks missing from a cache.
    pub cache_misses: u32,
}

impl ReadCost {
    /// Adds a concurrent read: times take the maximum, counts add.
    pub fn merge(&mut self, other: &Self) {
        self.via = self.via.union(other.via);
        self.queue = self.queue.max(other.queue);
        self.device = self.device.max(other.device);
        self.copy += other.copy;
        self.cache += other.cache;
        self.wire_bytes += other.wire_bytes;
        self.requests += other.requests;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
    }

    /// Adds a read that started after this one ended: times and counts add.
    pub fn then(&mut self, next: &Self) {
        let (queue, device) = (self.queue, self.device);
        self.merge(next);
        self.queue = queue + next.queue;
        self.device = device + next.device;
    }
}

/// Object as it was looked up. Reads are of this version: for another version a tier returns [`ErrorKind::Changed`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Path below the tier's root.
    pub path: ObjectPath,
    /// Length in bytes.
    pub size: u64,
    /// Tier's mark of this version (ETag, or inode with modification time). Equal marks mean equal bytes.
    pub version: String,
}

/// Ranges of an object in device memory.
#[derive(Debug)]
pub struct Landed {
    /// Memory, returned to its pool on drop.
    pub bytes: DeviceBytes,
    /// Position of each range in `bytes`, in request order.
    pub parts: Vec<Range<usize>>,
    /// Cost of all parts together.
    pub cost: ReadCost,
}

impl Landed {
    /// Copies all ranges to the host in a single copy, and waits. The parts share its memory, so do not keep single
    /// parts for long.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn to_host(&self) -> Result<Vec<Bytes>, DeviceError> {
        let mut all = vec![0; self.bytes.len()];
        self.bytes.to_host(0, &mut all)?;
        let all = Bytes::from(all);
        Ok(self.parts.iter().map(|part| all.slice(part.clone())).collect())
    }
}

/// A tier that can read into device memory.
#[async_trait]
pub trait DeviceReads: Send + Sync {
    /// Number of the device.
    fn ordinal(&self) -> u32;

    /// Reads many ranges into device memory: all of them, or an error. The future may be dropped at any moment: the
    /// read owns its memory until it has ended.
    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError>;
}
