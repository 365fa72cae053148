//! Conversion of rows to columns and back, for the columnar layouts. Columns are those of the table, an id, and each
//! row's checksum, [`CRC`].

use anyhow::{Context as _, Result, anyhow, bail};
use arrow_array::{Array as _, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tierlab_formats::table::TableHeader;
use tierlab_storage::tiers::flight::rows::{lay_out, to_batch};
use tierlab_storage::tiers::flight::schema::of_table;

/// Name of the checksum column, beside the columns of the table.
const CRC: &str = "row_crc32c";

/// The columns of a table.
pub(crate) struct Columns<'a> {
    header: &'a TableHeader,
    values: SchemaRef,
    pub(crate) schema: SchemaRef,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(header: &'a TableHeader) -> Result<Self> {
        let values = Arc::new(of_table(header, "file")?);
        if values.field_with_name(CRC).is_ok() {
            bail!("column `{CRC}` is the layout's own: import without it");
        }
        let crc = Arc::new(Field::new(CRC, DataType::UInt32, false));
        let fields: Vec<_> = values.fields().iter().map(Arc::clone).chain([crc]).collect();
        Ok(Self {
            header,
            values,
            schema: Arc::new(Schema::new(fields)),
        })
    }

    /// Converts rows to a batch that holds every byte of them.
    pub(crate) fn batch(&self, rows: &[(i64, Bytes)]) -> Result<RecordBatch> {
        let (ids, rows): (Vec<i64>, Vec<Bytes>) = rows.iter().cloned().unzip();
        let crcs = rows.iter().filter_map(|row| row.last_chunk());
        let crcs = UInt32Array::from_iter_values(crcs.map(|crc| u32::from_le_bytes(*crc)));
        let mut columns = to_batch(self.header, &self.values, &ids, &rows)?.columns().to_vec();
        columns.push(Arc::new(crcs));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        // A boolean that is neither 0 nor 1 would come back as another byte.
        let checked = add_sealed(self.header, &batch, &ids, &mut Vec::new()).map(|()| batch);
        checked.map_err(|_| anyhow!("columns cannot store a row exactly: write the table again"))
    }
}

/// Appends a batch to `out` as rows in order, each verified by the checksum written with it.
pub(crate) fn add_sealed(header: &TableHeader, batch: &RecordBatch, ids: &[i64], out: &mut Vec<u8>) -> Result<()> {
    let (before, stride) = (out.len(), header.stride as usize);
    lay_out(header, batch.schema().field(0).name(), batch, ids, out)?;
    let crcs = batch.column_by_name(CRC);
    let crcs = crcs.and_then(|column| column.as_any().downcast_ref::<UInt32Array>());
    let crcs = crcs.with_context(|| format!("missing column `{CRC}`: not laid out by this program"))?;
    for ((row, crc), id) in out[before..].chunks_exact(stride).zip(crcs.values()).zip(ids) {
        if row.last_chunk() != Some(&crc.to_le_bytes()) {
            bail!("entity {id}: wrong checksum: the page is damaged");
        }
    }
    Ok(())
}

/// Upper bound on the size of `rows` rows as columns, in bytes. Offsets, nulls and padding add to the rows, but never
/// several times their size.
pub(crate) fn max_bytes(header: &TableHeader, rows: usize) -> u64 {
    // Columns of the table, the id and the checksum.
    let columns = header.schema.columns.len() as u64 + 2;
    let row = u64::from(header.stride) + 16 * columns;
    4 * row * rows as u64 + 1024 * columns
}

/// Runs a step of a library that may panic on damaged files.
pub(crate) fn catch_panics<T, E>(step: impl FnOnce() -> Result<T, E>, error: impl FnOnce(String) -> E) -> Result<T, E> {
    let panicked = |_| Err(error("the reader panicked: the file is damaged".to_owned()));
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(panicked)
}
