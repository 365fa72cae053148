//! An open feature table: its header, where its rows lie, and the proof of all of them.
//!
//! In: a tier and a path. Out: the table as it was when it was opened, or what is wrong with it, by object and offset.
//! Knows nothing of requests.

use super::work;
use crate::repository::LoadError;
use bytes::Bytes;
use std::ops::Range;
use tierlab_protocol::table::{self, Column, TableError, TableHeader};
use tierlab_protocol::tensor::TensorSpec;
use tierlab_storage::{Object, ObjectPath, StorageError, Tier};

/// Bytes of one read when a whole table is proven.
const PROOF_BYTES: u64 = 8 << 20;

/// A table as it was when it was opened.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) object: Object,
    pub(super) header: TableHeader,
    /// [`TableHeader::header_len`], which costs a serialisation of the schema.
    pub(super) first_row: u64,
}

impl OpenTable {
    /// Reads and checks a table's header.
    ///
    /// # Errors
    /// The tier's; a header that is damaged or contradicts the object.
    pub(super) async fn open(tier: &dyn Tier, path: &ObjectPath) -> Result<Self, LoadError> {
        let bad = |e: TableError| LoadError::at(path, e);
        let object = tier.stat(path).await?;
        let read =
            async |range: Range<u64>| -> Result<Bytes, StorageError> { Ok(tier.read(&object, range).await?.bytes) };
        let mut bytes = read(0..object.size.min(table::ALIGN)).await?;
        let len = table::header_len(&bytes).map_err(bad)?;
        if len > bytes.len() as u64 && len <= object.size {
            bytes = read(0..len).await?;
        }
        let header = TableHeader::decode(&bytes, object.size).map_err(bad)?;
        let first_row = header.header_len();
        Ok(Self {
            object,
            header,
            first_row,
        })
    }

    /// Reads every row once, and proves each by its own checksum.
    ///
    /// # Errors
    /// The tier's; the first row that is damaged.
    pub(super) async fn prove(&self, tier: &dyn Tier) -> Result<(), LoadError> {
        let stride = u64::from(self.header.stride);
        let rows_at_once = (PROOF_BYTES / stride).max(1);
        let mut first = 0;
        while first < self.header.rows {
            let rows = rows_at_once.min(self.header.rows - first);
            let start = self.first_row + first * stride;
            let bytes = tier.read(&self.object, start..start + rows * stride).await?.bytes;
            let first_id = self.header.first_id + first.cast_signed();
            let proof = || {
                let mut rows = (first_id..).zip(bytes.chunks_exact(self.header.stride as usize));
                rows.try_for_each(|(id, row)| self.header.check_row(id, row))
            };
            work(true, proof).map_err(|e| LoadError::at(&self.object.path, e))?;
            first += rows;
        }
        Ok(())
    }

    /// The bytes of an entity's row; `None` where the table has none.
    pub(super) fn row_range(&self, id: i64) -> Option<Range<u64>> {
        if !self.header.ids().contains(&id) {
            return None;
        }
        let stride = u64::from(self.header.stride);
        let start = self.first_row + id.abs_diff(self.header.first_id) * stride;
        Some(start..start + stride)
    }

    /// The column of a name, where it fits an input.
    pub(super) fn column_for(&self, input: &TensorSpec, name: &str) -> Result<Column, String> {
        let schema = &self.header.schema;
        let column = schema.column(name).ok_or_else(|| {
            let have: Vec<&str> = schema.columns.iter().map(|column| column.name.as_str()).collect();
            format!(
                "no column `{name}` for input `{}`; it has {}",
                input.name,
                have.join(", ")
            )
        })?;
        check_fit(input, column)?;
        Ok(column.clone())
    }
}

fn check_fit(input: &TensorSpec, column: &Column) -> Result<(), String> {
    let dims = input.shape.get(1..).unwrap_or_default();
    let same = dims.len() == column.shape.len() && dims.iter().zip(&column.shape).all(|(&a, &b)| a == b || a == -1);
    if same && input.dtype == column.dtype {
        return Ok(());
    }
    Err(format!(
        "column `{}` is {} {:?} per row, input `{}` wants {} {dims:?}",
        column.name, column.dtype, column.shape, input.name, input.dtype
    ))
}
