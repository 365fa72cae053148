//! Trait of all tiers and wrappers, and the types of its calls.

use crate::device::DeviceReads;
use crate::error::StorageError;
use crate::limits::MAX_READ_BYTES;
use crate::path::ObjectPath;
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::path::PathBuf;
use tierlab_protocol::via::ViaSet;

pub use crate::cost::ReadCost;
pub use crate::object::Object;

/// Bytes of a single range.
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// Exactly the range asked for.
    pub bytes: Bytes,
    /// Cost of the read.
    pub cost: ReadCost,
}

/// The bytes of many ranges.
#[derive(Debug, Clone, Default)]
pub struct ReadMany {
    /// Bytes of each range, in request order.
    pub parts: Vec<Bytes>,
    /// Cost of all parts together.
    pub cost: ReadCost,
}

/// Description of a tier, for results and logs. Never holds credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierInfo {
    /// The kind, as in configs: `memory`, `nvme`, `nfs`, `s3`, `flight`, `gds`.
    pub kind: &'static str,
    /// Root, URL or endpoint.
    pub location: String,
    /// Wrappers around the tier, outermost first.
    pub wrappers: Vec<String>,
    /// Notes that belong beside every figure: `buffered: tmpfs refuses O_DIRECT`, `embedded origin`.
    pub notes: Vec<String>,
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

    /// Looks up an object, and thereby chooses the version for reads.
    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError>;

    /// Reads one range. An empty range inside the object reads nothing and succeeds; a range past the end is
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange). Never returns fewer bytes than requested.
    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        let mut many = self.read_many(object, &[range]).await?;
        let bytes = many.parts.pop().unwrap_or_default();
        Ok(Read { bytes, cost: many.cost })
    }

    /// Reads many ranges as a single request of the tier: all of them, or an error.
    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError>;

    /// Explains why reads that took these paths differ from the tier's configuration; `None` if they agree.
    fn shortfall(&self, took: ViaSet) -> Option<String> {
        let _ = took;
        None
    }

    /// Cost of reads that failed or whose caller went away, since the last call. Used to count everything that reaches
    /// the tier. Tiers and wrappers that lose no cost, or cannot know it, return `None`.
    fn take_unreported(&self) -> Option<ReadCost> {
        None
    }

    /// Reads into device memory; `None` if this tier has none.
    fn device(&self) -> Option<&dyn DeviceReads> {
        None
    }

    /// Drops wrappers' copies of these ranges of a version, because the bytes turned out to be damaged. The next read
    /// of these ranges reads from the tier itself. Does nothing for a tier without copies.
    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        let _ = (object, ranges);
    }

    /// Lists the objects whose path begins with the segments of `prefix` (all of them for `None`), in order of path.
    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError>;

    /// Writes a whole object, replacing an existing one. Readers see the old version or the new version, never a mix.
    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError>;

    /// Removes an object.
    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError>;
}

/// Checks ranges against an object's size before any I/O.
///
/// # Errors
/// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) for a reversed range or one past the end;
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than [`MAX_READ_BYTES`] together.
pub fn check_ranges(object: &Object, ranges: &[Range<u64>]) -> Result<(), StorageError> {
    let mut sum = 0_u64;
    for range in ranges {
        if range.start > range.end || range.end > object.size {
            return Err(StorageError::new(
                crate::ErrorKind::OutOfRange,
                object.path.as_str(),
                format!("range {}..{} of {} bytes", range.start, range.end, object.size),
            ));
        }
        sum = sum.saturating_add(range.end - range.start);
    }
    if sum > MAX_READ_BYTES {
        let what = format!("{sum} bytes in one call, of {MAX_READ_BYTES} at most: its size is not believed");
        return Err(StorageError::new(crate::ErrorKind::Invalid, object.path.as_str(), what).told_to_clients());
    }
    Ok(())
}
