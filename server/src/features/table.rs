//! Open feature table: its header, the positions of its rows, and their verification.
//!
//! In: a tier and a path. Out: the table as it was when opened, of a version that was not being changed, or what is
//! wrong with it, by object and offset. Knows nothing of requests.

use super::ids::{EntityIds, IdKind};
use crate::error::LoadError;
use crate::request::offload_if;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;
use tierlab_formats::table::{self, Column, KeyIndex, KeyKind, TableError, TableHeader};
use tierlab_protocol::tensor::TensorSpec;
use tierlab_storage::{ErrorKind, Object, ObjectPath, StorageError, Tier};
use tokio::time::Instant;

/// Age from which a version's header is trusted. A write in place sets the modification time before its bytes arrive,
/// so a younger version may be incomplete.
const STABLE_FOR: Duration = Duration::from_millis(20);
/// Maximum number of checks until a table stops changing.
const STABILITY_CHECKS: u32 = 50;
/// Size up to which a replaced table is verified by its header's block checksums before use: during an overwrite, rows
/// of another version may follow the header.
const MAX_CHECKED_BYTES: u64 = 64 << 20;
/// Maximum number of reads until a table is consistent. After that its mismatching rows are treated as damaged, which
/// their own checksums detect.
const MAX_CONSISTENCY_READS: u32 = 10;
const CONSISTENCY_PAUSE: Duration = Duration::from_millis(100);
/// Bytes per read when a whole table is verified.
const VERIFY_CHUNK_BYTES: u64 = 8 << 20;

/// Table as it was when opened.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) object: Object,
    pub(super) header: TableHeader,
    /// [`TableHeader::header_len`], stored because it serialises the schema.
    pub(super) first_row: u64,
    /// Index from keys to candidate rows, for tables with keys.
    pub(super) index: Option<KeyIndex>,
}

impl OpenTable {
    /// Reads and checks a table's header, once its version does not change any more.
    ///
    /// # Errors
    /// Fails if the tier fails, if the header is damaged or contradicts the object, or if the table is constantly
    /// written to.
    pub(super) async fn open(tier: &dyn Tier, path: &ObjectPath) -> Result<Self, LoadError> {
        let mut object = tier.stat(path).await?;
        for _ in 0..STABILITY_CHECKS {
            let checked_at = Instant::now();
            let opened = Self::open_version(tier, object.clone()).await;
            tokio::time::sleep_until(checked_at + STABLE_FOR).await;
            let now = tier.stat(path).await?;
            if now == object {
                return opened;
            }
            object = now;
        }
        Err(rewrite_error(path))
    }

    /// Opens a table that was replaced, once its rows match its header.
    ///
    /// # Errors
    /// Same as [`OpenTable::open`].
    pub(super) async fn open_replaced(tier: &dyn Tier, path: &ObjectPath) -> Result<Self, LoadError> {
        let mut last: Option<(Self, u32)> = None;
        for _ in 0..MAX_CONSISTENCY_READS {
            let open = Self::open(tier, path).await?;
            match open.matches_checksums(tier).await {
                Ok(true) => return Ok(open),
                Ok(false) => {
                    // A stage may hold bytes that were half written.
                    let object_range = 0..open.object.size;
                    tier.forget(&open.object, std::slice::from_ref(&object_range)).await;
                    let before = last.filter(|(last, _)| last.same_as(&open));
                    last = Some((open, before.map_or(1, |(_, times)| times + 1)));
                }
                Err(error) if error.kind() == ErrorKind::Changed => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(CONSISTENCY_PAUSE).await;
        }
        match last {
            // The table does not change any more: its mismatching rows are damaged, the others are not.
            Some((open, times)) if times > MAX_CONSISTENCY_READS / 2 => {
                tracing::warn!(object = %path, "the replaced table has blocks that do not match their checksums");
                Ok(open)
            }
            _ => Err(rewrite_error(path)),
        }
    }

    /// True if all blocks match their checksums. Large tables and tables without checksums are assumed to match.
    async fn matches_checksums(&self, tier: &dyn Tier) -> Result<bool, StorageError> {
        if self.header.rows_per_block == 0 || self.object.size > MAX_CHECKED_BYTES {
            return Ok(true);
        }
        let range = self.first_row..self.header.rows_end();
        let rows = tier.read(&self.object, range).await?.bytes;
        let block = self.header.stride as usize * self.header.rows_per_block as usize;
        let crcs = self.header.block_crcs.clone();
        let fits = move || rows.chunks(block).map(crc32c::crc32c).eq(crcs);
        let fits = tokio::task::spawn_blocking(fits).await;
        Ok(fits.unwrap_or(false))
    }

    /// True if `other` has the same version and header.
    pub(super) fn same_as(&self, other: &Self) -> bool {
        self.object == other.object && self.header == other.header
    }

    async fn open_version(tier: &dyn Tier, object: Object) -> Result<Self, LoadError> {
        let path = &object.path;
        let bad = |e: TableError| LoadError::at(path, e);
        let read =
            async |range: Range<u64>| -> Result<Bytes, StorageError> { Ok(tier.read(&object, range).await?.bytes) };
        let mut bytes = read(0..object.size.min(table::ALIGN)).await?;
        let len = table::header_len(&bytes).map_err(bad)?;
        if len > bytes.len() as u64 && len <= object.size {
            bytes = read(0..len).await?;
        }
        let header = TableHeader::decode(&bytes, object.size).map_err(bad)?;
        let first_row = header.header_len();
        let index = match header.index_range() {
            None => None,
            Some(range) => {
                let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
                for start in range.clone().step_by(VERIFY_CHUNK_BYTES as usize) {
                    bytes.extend_from_slice(&read(start..range.end.min(start + VERIFY_CHUNK_BYTES)).await?);
                }
                let decoded = offload_if(true, || KeyIndex::decode(&bytes, header.rows));
                Some(decoded.map_err(|e| LoadError::at(path, format!("from byte {} on: {e}", range.start)))?)
            }
        };
        Ok(Self {
            object,
            header,
            first_row,
            index,
        })
    }

    /// Kind of entity id.
    pub(super) fn id_kind(&self) -> IdKind {
        let key = self.header.schema.key.as_ref();
        key.map_or(IdKind::Dense, |key| IdKind::Keyed(key.kind))
    }

    /// Number by which each entity's row is read: its id, or the row that may hold its key. Otherwise the index of the
    /// first entity that the table does not have.
    pub(super) fn row_numbers<'a>(&self, ids: &'a EntityIds) -> Result<Cow<'a, [i64]>, usize> {
        let Some(index) = &self.index else {
            let EntityIds::Int64(ids) = ids else { return Err(0) };
            let valid_ids = self.header.ids();
            return match ids.iter().position(|id| !valid_ids.contains(id)) {
                Some(unknown) => Err(unknown),
                None => Ok(Cow::Borrowed(ids)),
            };
        };
        let numbers = (0..ids.len()).map(|at| index.row(&ids.key(at)).map(u64::cast_signed).ok_or(at));
        numbers.collect::<Result<Vec<i64>, usize>>().map(Cow::Owned)
    }

    /// Index of the first row of another entity: compares verified rows with the requested keys.
    pub(super) fn foreign_row(&self, ids: &EntityIds, rows: &[Bytes]) -> Option<usize> {
        let column = self.header.schema.key.as_ref()?;
        let mut rows = rows.iter().enumerate();
        rows.find(|(at, row)| column.get(row) != Some(&*ids.key(*at)))
            .map(|(at, _)| at)
    }

    /// An entity for messages.
    pub(super) fn format_entity(&self, ids: &EntityIds, at: usize) -> String {
        let kind = self.header.schema.key.as_ref().map_or(KeyKind::Int64, |key| key.kind);
        kind.for_message(&ids.key(at))
    }

    /// Reads every row once, and verifies each by its own checksum.
    ///
    /// # Errors
    /// Fails if the tier fails, or at the first damaged row.
    pub(super) async fn verify_rows(&self, tier: &dyn Tier) -> Result<(), LoadError> {
        let stride = u64::from(self.header.stride);
        let rows_at_once = (VERIFY_CHUNK_BYTES / stride).max(1);
        let mut first = 0;
        while first < self.header.rows {
            let rows = rows_at_once.min(self.header.rows - first);
            let start = self.first_row + first * stride;
            let bytes = tier.read(&self.object, start..start + rows * stride).await?.bytes;
            let first_id = self.header.first_id + first.cast_signed();
            let verify = || {
                let mut rows = (first_id..).zip(bytes.chunks_exact(self.header.stride as usize));
                rows.try_for_each(|(id, row)| self.header.check_row(id, row))
            };
            offload_if(true, verify).map_err(|e| LoadError::at(&self.object.path, e))?;
            first += rows;
        }
        Ok(())
    }

    /// Range of an entity's row; `None` if the table has none.
    pub(super) fn row_range(&self, id: i64) -> Option<Range<u64>> {
        if !self.header.ids().contains(&id) {
            return None;
        }
        let stride = u64::from(self.header.stride);
        let start = self.first_row + id.abs_diff(self.header.first_id) * stride;
        Some(start..start + stride)
    }

    /// Column of a name, if it matches an input.
    pub(super) fn column_for(&self, input: &TensorSpec, name: &str) -> Result<Column> {
        let schema = &self.header.schema;
        let column = schema.column(name).with_context(|| {
            let names: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
            let (input, names) = (&input.name, names.join(", "));
            format!("missing column `{name}` for input `{input}`; columns: {names}")
        })?;
        let dims = input.shape.get(1..).unwrap_or_default();
        let same = dims.len() == column.shape.len() && dims.iter().zip(&column.shape).all(|(&a, &b)| a == b || a == -1);
        if same && input.dtype == column.dtype {
            return Ok(column.clone());
        }
        let Column { name, dtype, shape, .. } = column;
        let (input, required) = (&input.name, input.dtype);
        bail!("column `{name}` is {dtype} {shape:?} per row, but input `{input}` requires {required} {dims:?}")
    }
}

fn rewrite_error(path: &ObjectPath) -> LoadError {
    let message = "it is constantly rewritten: write a new file and rename it, or pause";
    LoadError::at(path, message).transient()
}
