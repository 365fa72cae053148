//! Streams a table to disk: every core fills, seals and writes chunks at their offsets, the header comes last.

use super::RowSource;
use super::chunks::{self, Chunk};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::staged::StagedFile;
use crate::stop::Stop;
use std::path::Path;
use tierlab_formats::table::TableHeader;

/// Writes the table that `header` describes (its block checksums still unset) to `target`, which appears atomically.
/// Memory is a few megabytes per core and four bytes per block, whatever the number of rows.
///
/// # Errors
/// A file that cannot be written, or a stop; then `target` stays unchanged.
pub fn write(
    target: &Path,
    source: &dyn RowSource,
    mut header: TableHeader,
    progress: &mut Progress,
    stop: &Stop,
) -> Result<TableHeader, ModelsError> {
    let staged = StagedFile::create(target)?;
    // Until the header is written, the file begins with zeros and is not a table.
    staged
        .file()
        .set_len(header.file_len())
        .map_err(ModelsError::io("reserve", staged.partial()))?;
    let mut block_crcs = vec![0; header.block_crcs.len()];
    let fill = |chunk: &Chunk, buffer: &mut [u8]| {
        let crcs = fill_chunk(source, &header, chunk, buffer);
        staged.write_at(buffer, chunk.bytes.start)?;
        Ok(crcs)
    };
    chunks::for_each(&header, stop, fill, |chunk, crcs| {
        let first = chunk.blocks.start as usize;
        block_crcs[first..first + crcs.len()].copy_from_slice(&crcs);
        progress.advance(chunk.bytes.end - chunk.bytes.start);
    })?;
    header.block_crcs = block_crcs;
    staged.write_at(&header.encode(), 0)?;
    progress.advance(header.header_len());
    progress.note(&format!("syncing {} to the device", target.display()));
    stop.check()?;
    staged.commit()?;
    Ok(header)
}

/// Fills a chunk's rows and returns its blocks' checksums.
fn fill_chunk(source: &dyn RowSource, header: &TableHeader, chunk: &Chunk, buffer: &mut [u8]) -> Vec<u32> {
    let stride = header.stride as usize;
    buffer.fill(0);
    let first = header.first_id + (chunk.blocks.start * u64::from(header.rows_per_block)).cast_signed();
    for (id, row) in (first..).zip(buffer.chunks_exact_mut(stride)) {
        source.fill(id, row);
        header.seal_row(id, row);
    }
    buffer
        .chunks(stride * header.rows_per_block as usize)
        .map(crc32c::crc32c)
        .collect()
}
