//! Export of a table as Parquet for other tools. In: a table's file. Out: a Parquet file with the ids or keys first,
//! and a fixed-size list for each vector, in bounded memory. Every row is verified.

use super::check;
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::staged::StagedFile;
use crate::stop::Stop;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::path::Path;
use std::sync::Arc;
use tierlab_formats::table::EXTENSION;
use tierlab_storage::tiers::flight::rows::to_batch;
use tierlab_storage::tiers::flight::schema::of_table;

/// Bytes of rows in memory at a time, and of a row group while it is written.
const BATCH_BYTES: u64 = 8 << 20;
const GROUP_BYTES: usize = 64 << 20;

/// Writes a table as Parquet; returns its rows and the file's bytes.
///
/// # Errors
/// A damaged table, with row and offset; a file that is named as a table or cannot be written; a stop. Then `to` stays
/// unchanged.
pub fn export(table: &Path, to: &Path, stop: &Stop) -> Result<(u64, u64), ModelsError> {
    let bad = |what: &dyn std::fmt::Display| ModelsError::bad(&table.display(), what);
    if to.extension().is_some_and(|extension| extension == EXTENSION) {
        let what = format!("--to {}: name a Parquet file, not a table", to.display());
        return Err(ModelsError::Usage(what));
    }
    let (file, header) = check::open(table)?;
    let schema = Arc::new(of_table(&header, "file").map_err(|e| bad(&e))?);
    let staged = StagedFile::create(to)?;
    let write_error =
        |e: parquet::errors::ParquetError| ModelsError::bad(&to.display(), &format!("cannot be written: {e}"));
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let out = staged.file.try_clone();
    let out = out.map_err(ModelsError::io("write", &staged.partial))?;
    let mut writer = ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(write_error)?;
    let label = format!("exporting {}", table.display());
    let mut progress = Progress::bytes(&label, header.rows_end() - header.header_len());
    let stride = u64::from(header.stride);
    let batch_rows = (BATCH_BYTES / stride).clamp(1, 1 << 16);
    for row in (0..header.rows).step_by(batch_rows as usize) {
        stop.check()?;
        let count = batch_rows.min(header.rows - row);
        let mut bytes = vec![0; (count * stride) as usize];
        check::read_at(table, &file, &mut bytes, header.header_len() + row * stride)?;
        let bytes = Bytes::from(bytes);
        let first = header.first_id + row.cast_signed();
        let ids: Vec<i64> = (first..).take(count as usize).collect();
        let at = |row: u64| (row * stride) as usize;
        let rows: Vec<Bytes> = (0..count).map(|row| bytes.slice(at(row)..at(row + 1))).collect();
        let batch = to_batch(&header, &schema, &ids, &rows).map_err(|e| bad(&e))?;
        writer.write(&batch).map_err(write_error)?;
        if writer.in_progress_size() >= GROUP_BYTES {
            writer.flush().map_err(write_error)?;
        }
        progress.advance(count * stride);
    }
    writer.close().map_err(write_error)?;
    let written = staged.file.metadata();
    let written = written.map_err(ModelsError::io("read", &staged.partial))?;
    staged.commit()?;
    Ok((header.rows, written.len()))
}
