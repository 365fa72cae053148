//! A table in the rows format, read in order.

use bytes::Bytes;
use tierlab_formats::table::{PRELUDE_BYTES, TableHeader, header_len};
use tierlab_storage::{ErrorKind, Object, ObjectPath, StorageError, Tier};

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
        let refuse = |what: &str| Err(StorageError::new(ErrorKind::Unsupported, path.as_str(), what));
        if header.rows_per_block == 0 {
            return refuse("it has no block checksums, so it was not written as a file: generate or import it again");
        }
        if header.schema.stride().ok() != Some(header.stride) {
            return refuse("its rows are further apart than its columns need: write it again with this version");
        }
        Ok(Self { tier, object, header })
    }

    /// Index of keys behind the rows, about 3.5 bits per row; empty if entities have no keys.
    pub(crate) async fn index(&self) -> Result<Bytes, StorageError> {
        match self.header.index_range() {
            None => Ok(Bytes::new()),
            Some(range) => Ok(self.tier.read(&self.object, range).await?.bytes),
        }
    }

    /// The rows of ids that follow each other, each checked.
    pub(crate) async fn rows(&self, ids: std::ops::Range<i64>) -> Result<Vec<(i64, Bytes)>, StorageError> {
        let at = |id| self.header.row_range(id);
        let (Some(first), Some(last)) = (at(ids.start), at(ids.end - 1)) else {
            return Ok(Vec::new());
        };
        let read = self.tier.read(&self.object, first.start..last.end).await?;
        let stride = self.header.stride as usize;
        let rows = ids.enumerate().map(|(i, id)| {
            let row = read.bytes.slice(i * stride..(i + 1) * stride);
            self.header
                .check_row(id, &row)
                .map_err(|e| corrupt(&self.object.path, e))?;
            Ok((id, row))
        });
        rows.collect()
    }
}

pub(crate) fn corrupt(path: &ObjectPath, what: impl std::fmt::Display) -> StorageError {
    StorageError::new(ErrorKind::Corrupt, path.as_str(), what.to_string())
}
