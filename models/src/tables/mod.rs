//! Feature tables: contents of their rows, writing them at any size, checking them. [`tierlab_formats::table`] defines
//! the format.
//!
//! A row depends only on the table, the seed and the entity id, so every row can be generated again alone and compared
//! with a tier's.

pub mod check;
pub mod ctr;
#[cfg(feature = "tables")]
pub mod export;
#[cfg(feature = "tables")]
pub mod import;
pub mod vision;
mod workers;

use crate::error::ModelsError;
use crate::progress::Progress;
use crate::repository::Outcome;
use crate::staged::StagedFile;
use crate::stop::Stop;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use strum::Display;
use tierlab_formats::table::{EXTENSION, TableHeader, TableSchema};
use workers::{Chunk, for_each_chunk};

/// Default folder of feature tables.
pub const FEATURES: &str = "models/features";

/// Rows of an existing table that are generated again and compared before it counts as the requested one.
const SAMPLED_ROWS: u64 = 64;

/// Kind of generated table; it is `features/NAME.rows` under its lower-case name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Display)]
#[strum(serialize_all = "lowercase")]
pub enum TableKind {
    /// 13 dense and 26 categorical features, 512 bytes a row
    Ctr,
    /// A 3x224x224 uint8 image, 148 KiB a row
    Vision,
}

impl TableKind {
    /// Creates the source of one seed's rows.
    ///
    /// # Errors
    /// A schema that the format cannot hold.
    pub fn source(self, seed: u64) -> Result<Box<dyn RowSource>, ModelsError> {
        let columns: &[_] = match self {
            Self::Ctr => &ctr::COLUMNS,
            Self::Vision => &vision::COLUMNS,
        };
        let name = self.to_string();
        let schema = TableSchema::lay_out(&name, columns).map_err(|e| ModelsError::bad(&name, &e))?;
        let kind = self;
        Ok(Box::new(SeededRows { kind, seed, schema }))
    }
}

/// Source of rows.
pub trait RowSource: Sync {
    /// Columns of the rows.
    fn schema(&self) -> &TableSchema;

    /// Writes the columns of entity `id` into `row`, one zeroed stride. The last four bytes are reserved for the
    /// checksum.
    fn fill(&self, id: i64, row: &mut [u8]);
}

/// Rows of a generated table.
struct SeededRows {
    kind: TableKind,
    seed: u64,
    schema: TableSchema,
}

impl RowSource for SeededRows {
    fn schema(&self) -> &TableSchema {
        &self.schema
    }

    fn fill(&self, id: i64, row: &mut [u8]) {
        match self.kind {
            TableKind::Ctr => ctr::fill(self.seed, id, &self.schema, row),
            TableKind::Vision => vision::paint(self.seed, id, &mut row[..vision::IMAGE_BYTES]),
        }
    }
}

/// Result of [`generate`].
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedTable {
    /// Path of the table.
    pub path: PathBuf,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Header of the table.
    pub header: TableHeader,
    /// Seconds of writing or checking.
    pub seconds: f64,
}

/// Writes `OUT/NAME.rows` with entities `0..rows`, unless the same undamaged table exists.
///
/// # Errors
/// More rows than the format's header can describe, a file that cannot be written, or a stop.
pub fn generate(kind: TableKind, rows: u64, seed: u64, out: &Path, stop: &Stop) -> Result<GeneratedTable, ModelsError> {
    let source = kind.source(seed)?;
    let header = TableHeader::new(source.schema().clone(), rows, 0, seed)
        .map_err(|e| ModelsError::Usage(format!("--rows {rows}: {e}")))?;
    let path = out.join(format!("{kind}.{EXTENSION}"));
    // Block checksums, which are not known yet, are not compared.
    let is_same = |found: &TableHeader| {
        let mut found = found.clone();
        found.block_crcs.clone_from(&header.block_crcs);
        found == header
    };
    let done = |outcome, header, progress: &Progress| GeneratedTable {
        path: path.clone(),
        outcome,
        header,
        seconds: progress.seconds(),
    };
    if let Ok(found) = check::read_header(&path)
        && is_same(&found)
        && check::verify_sample(&path, &found, &*source, SAMPLED_ROWS).is_ok()
    {
        let mut progress = Progress::bytes(&format!("checking {}", path.display()), header.file_len());
        match check::verify(&path, &mut progress, stop) {
            Ok(header) => return Ok(done(Outcome::UpToDate, header, &progress)),
            Err(ModelsError::Interrupted) => return Err(ModelsError::Interrupted),
            // Damaged tables are written again below.
            Err(_) => {}
        }
    }
    let mut progress = Progress::bytes(&format!("writing {}", path.display()), header.file_len());
    let header = write(&path, &*source, header.clone(), &mut progress, stop)?;
    Ok(done(Outcome::Written, header, &progress))
}

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
    let reserved = staged.file.set_len(header.file_len());
    reserved.map_err(ModelsError::io("reserve", &staged.partial))?;
    let mut block_crcs = vec![0; header.block_crcs.len()];
    let fill = |chunk: &Chunk, buffer: &mut [u8]| {
        let crcs = fill_chunk(source, &header, chunk, buffer);
        staged.write_at(buffer, chunk.bytes.start)?;
        Ok(crcs)
    };
    for_each_chunk(&header, stop, fill, |chunk, crcs| {
        let first = chunk.blocks.start as usize;
        block_crcs[first..first + crcs.len()].copy_from_slice(&crcs);
        progress.advance(chunk.bytes.end - chunk.bytes.start);
    })?;
    header.block_crcs = block_crcs;
    staged.write_at(&header.encode(), 0)?;
    progress.advance(header.header_len());
    progress.show_on_terminal(&format!("syncing {} to the device", target.display()));
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
    let blocks = buffer.chunks(stride * header.rows_per_block as usize);
    blocks.map(crc32c::crc32c).collect()
}
