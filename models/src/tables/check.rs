//! Reads tables back: headers, single rows, every checksum.

use super::RowSource;
use super::workers::{Chunk, for_each_chunk};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::stop::Stop;
use anyhow::{Context as _, bail, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use tierlab_formats::table::{KeyIndex, PRELUDE_BYTES, TableHeader, header_len};

/// Reads and validates a table's header against the file's length.
///
/// # Errors
/// A file that cannot be read or is not a table, with the offset.
pub fn read_header(path: &Path) -> Result<TableHeader, ModelsError> {
    open(path).map(|(_, header)| header)
}

pub(super) fn open(path: &Path) -> Result<(File, TableHeader), ModelsError> {
    let bad = |e| ModelsError::bad(&path.display(), &e);
    let file = File::open(path).map_err(ModelsError::io("open", path))?;
    let len = file.metadata().map_err(ModelsError::io("read", path))?.len();
    let mut bytes = vec![0; PRELUDE_BYTES.min(len as usize)];
    read_at(path, &file, &mut bytes, 0)?;
    let header_bytes = header_len(&bytes).map_err(bad)?;
    bytes.resize(header_bytes.min(len) as usize, 0);
    read_at(path, &file, &mut bytes, 0)?;
    let header = TableHeader::decode(&bytes, len).map_err(bad)?;
    Ok((file, header))
}

/// Fills a buffer with a table's bytes from an offset on.
pub(super) fn read_at(path: &Path, file: &File, bytes: &mut [u8], at: u64) -> Result<(), ModelsError> {
    file.read_exact_at(bytes, at).map_err(ModelsError::io("read", path))
}

/// Checks every block's and every row's checksum.
///
/// # Errors
/// The first damage found, with its offset; or a stop.
pub fn verify(path: &Path, progress: &mut Progress, stop: &Stop) -> Result<TableHeader, ModelsError> {
    let (file, header) = open(path)?;
    if header.rows_per_block == 0 {
        let what = "it has no block checksums, so it was not written as a file: generate or import it again";
        return Err(ModelsError::bad(&path.display(), &what));
    }
    let index = read_index(path, &file, &header)?;
    let check = |chunk: &Chunk, buffer: &mut [u8]| {
        read_at(path, &file, buffer, chunk.bytes.start)?;
        check_chunk(&header, index.as_ref(), chunk, buffer).map_err(|what| ModelsError::bad(&path.display(), &what))
    };
    for_each_chunk(&header, stop, check, |chunk, ()| {
        progress.advance(chunk.bytes.end - chunk.bytes.start);
    })?;
    progress.advance(header.header_len());
    Ok(header)
}

/// Reads and checks the index of keys; `None` if entities have no keys.
///
/// # Errors
/// A damaged index, with the offset in the file.
pub fn read_index(path: &Path, file: &File, header: &TableHeader) -> Result<Option<KeyIndex>, ModelsError> {
    let Some(range) = header.index_range() else {
        return Ok(None);
    };
    let mut bytes = vec![0; (range.end - range.start) as usize];
    read_at(path, file, &mut bytes, range.start)?;
    let index = KeyIndex::decode(&bytes, header.rows).map(Some);
    index.map_err(|e| ModelsError::bad(&path.display(), &format!("from byte {} on: {e}", range.start)))
}

fn check_chunk(header: &TableHeader, index: Option<&KeyIndex>, chunk: &Chunk, buffer: &[u8]) -> anyhow::Result<()> {
    let stride = header.stride as usize;
    let block_bytes = stride * header.rows_per_block as usize;
    for (block, bytes) in chunk.blocks.clone().zip(buffer.chunks(block_bytes)) {
        let first = header.first_id + (block * u64::from(header.rows_per_block)).cast_signed();
        // Rows first: their errors name the entity.
        for (id, row) in (first..).zip(bytes.chunks_exact(stride)) {
            header.check_row(id, row)?;
            let (Some(index), Some(column)) = (index, &header.schema.key) else {
                continue;
            };
            let key = column.get(row);
            let key = key.with_context(|| format!("row {id}: its key is damaged"))?;
            if index.row(key) != u64::try_from(id).ok() {
                let key = column.kind.for_message(key);
                bail!("row {id}: the index does not find its key {key}");
            }
        }
        let listed = header.block(block);
        let (range, expected) = listed.with_context(|| format!("block {block} is not in the header"))?;
        let found = crc32c::crc32c(bytes);
        let at = range.start;
        ensure!(
            found == expected,
            "block {block}, offset {at}: checksum {found:08x}, the header says {expected:08x}"
        );
    }
    Ok(())
}

/// Generates up to `count` rows, spread over the table, and compares them with the file's.
///
/// # Errors
/// A row that differs in the file: another generator or seed, or damage.
pub fn verify_sample(path: &Path, header: &TableHeader, source: &dyn RowSource, count: u64) -> Result<(), ModelsError> {
    let file = File::open(path).map_err(ModelsError::io("open", path))?;
    let stride = header.stride as usize;
    let (mut actual, mut expected) = (vec![0; stride], vec![0; stride]);
    let count = count.min(header.rows);
    for i in 0..count {
        // First and last row included; 128 bits because rows × count may not fit 64.
        let row = u128::from(header.rows - 1) * u128::from(i) / u128::from((count - 1).max(1));
        let id = header.first_id + row as i64;
        let Some(range) = header.row_range(id) else { continue };
        read_at(path, &file, &mut actual, range.start)?;
        expected.fill(0);
        source.fill(id, &mut expected);
        header.seal_row(id, &mut expected);
        if actual != expected {
            let what = format!("the row of entity {id} differs from the generator's");
            return Err(ModelsError::bad(&path.display(), &what));
        }
    }
    Ok(())
}
