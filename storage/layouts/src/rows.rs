//! Reads of rows: a table in the rows format in order, and adjacent ranges joined.

use bytes::Bytes;
use std::ops::Range;
use std::time::{Duration, Instant};
use tierlab_formats::table::{PRELUDE_BYTES, TableHeader, header_len};
use tierlab_storage::ranges::runs;
use tierlab_storage::{ErrorKind, Object, ObjectPath, ReadCost, StorageError, Tier};

/// Cost of rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Cost of reads, including those of indexes. A file per entity costs one more request for its look-up, except on
    /// tiers whose reply includes the size.
    pub read: ReadCost,
    /// Total time of decoding the tier's bytes to rows, including checksums.
    pub decode: Duration,
}

impl Cost {
    /// Cost of a read whose decoding began at `began` and ends now.
    pub(crate) fn since(read: ReadCost, began: Instant) -> Self {
        let decode = began.elapsed();
        Self { read, decode }
    }

    /// Adds concurrent work: waits overlap, all else adds.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.decode += other.decode;
    }

    /// Adds work before or after this: everything adds.
    pub(crate) fn then(&mut self, other: &Self) {
        self.read.then(&other.read);
        self.decode += other.decode;
    }
}

/// A table to be laid out.
pub(crate) struct Source<'a> {
    tier: &'a dyn Tier,
    object: Object,
    pub(crate) header: TableHeader,
}

impl<'a> Source<'a> {
    /// Opens a table whose rows can be laid out.
    pub(crate) async fn open(tier: &'a dyn Tier, path: &ObjectPath) -> Result<Self, StorageError> {
        let object = tier.stat(path).await?;
        let bad = |e: tierlab_formats::table::TableError| corrupt(path, e);
        let prelude = tier.read(&object, 0..object.size.min(PRELUDE_BYTES as u64)).await?;
        let len = header_len(&prelude.bytes).map_err(bad)?.min(object.size);
        let read = tier.read(&object, 0..len).await?;
        let header = TableHeader::decode(&read.bytes, object.size).map_err(bad)?;
        let refuse = |detail: &str| Err(ErrorKind::Unsupported.error(path, detail));
        if header.rows_per_block == 0 {
            return refuse("it has no block checksums, so it was not written as a file: generate or import it again");
        }
        if header.schema.stride().ok() != Some(header.stride) {
            return refuse("its stride is larger than its columns need: write it again with this version");
        }
        Ok(Self { tier, object, header })
    }

    /// Returns the index of keys after the rows, about 3.5 bits per row; empty if entities do not have keys.
    pub(crate) async fn index(&self) -> Result<Bytes, StorageError> {
        match self.header.index_range() {
            None => Ok(Bytes::new()),
            Some(range) => Ok(self.tier.read(&self.object, range).await?.bytes),
        }
    }

    /// Returns the rows of consecutive ids, each checked.
    pub(crate) async fn rows(&self, ids: Range<i64>) -> Result<Vec<(i64, Bytes)>, StorageError> {
        let at = |id| self.header.row_range(id);
        let (Some(first), Some(last)) = (at(ids.start), at(ids.end - 1)) else {
            return Ok(Vec::new());
        };
        let read = self.tier.read(&self.object, first.start..last.end).await?;
        let stride = self.header.stride as usize;
        let rows = ids.enumerate().map(|(i, id)| {
            let row = read.bytes.slice(i * stride..(i + 1) * stride);
            let checked = self.header.check_row(id, &row);
            checked.map_err(|e| corrupt(&self.object.path, e))?;
            Ok((id, row))
        });
        rows.collect()
    }
}

/// Drops cached bytes of an object around the tier.
pub(crate) async fn forget(tier: &dyn Tier, object: &Object) {
    let whole = 0..object.size;
    tier.forget(object, std::slice::from_ref(&whole)).await;
}

pub(crate) fn corrupt(path: &ObjectPath, detail: impl std::fmt::Display) -> StorageError {
    ErrorKind::Corrupt.error(path, detail.to_string())
}

/// Maximum bytes of a joined read.
pub(crate) const MAX_READ_BYTES: u64 = 64 << 20;

/// Reads ranges, adjacent ones joined, such as rows of a scan; returns one part per range, in request order. Joining helps
/// every tier, even one that joins no ranges itself.
pub(crate) async fn read(
    tier: &dyn Tier,
    object: &Object,
    ranges: &[Range<u64>],
) -> Result<(Vec<Bytes>, ReadCost), StorageError> {
    let runs = runs(ranges, 0, MAX_READ_BYTES);
    let joined: Vec<Range<u64>> = runs.iter().map(|run| run.range.clone()).collect();
    let read = tier.read_many(object, &joined).await?;
    let mut parts = Vec::with_capacity(ranges.len());
    for (run, bytes) in runs.iter().zip(&read.parts) {
        for range in &ranges[parts.len()..parts.len() + run.members] {
            let at = |offset: u64| (offset - run.range.start) as usize;
            parts.push(bytes.slice(at(range.start)..at(range.end)));
        }
    }
    Ok((parts, read.cost))
}
