//! Feature tables: what their rows hold, writing them at any size, checking them. The format is
//! [`tierlab_formats::table`]'s.
//!
//! A row's content depends on the table, the seed and the entity id only, so every row can be generated again alone and
//! compared with what a tier gave.

pub mod check;
mod chunks;
pub mod ctr;
#[cfg(feature = "flight")]
pub mod export;
pub mod own;
mod source;
pub mod vision;
pub mod write;

use crate::error::ModelsError;
use crate::progress::Progress;
use crate::repository::Outcome;
use crate::stop::Stop;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use tierlab_formats::table::{EXTENSION, TableHeader};

pub use source::RowSource;

/// Rows of an existing table that are made again and compared before it is taken as the one asked for.
const SAMPLED_ROWS: u64 = 64;

/// A table that can be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableKind {
    /// 13 dense and 26 categorical features, 512 bytes a row
    Ctr,
    /// A 3x224x224 uint8 image, 148 KiB a row
    Vision,
}

impl TableKind {
    /// The table's name: `features/NAME.rows`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ctr => "ctr",
            Self::Vision => "vision",
        }
    }

    /// The rows of one seed.
    ///
    /// # Errors
    /// A schema that the format cannot hold.
    pub fn source(self, seed: u64) -> Result<Box<dyn RowSource>, ModelsError> {
        let bad = |e| ModelsError::bad(&self.name(), &e);
        Ok(match self {
            Self::Ctr => Box::new(ctr::CtrRows::new(seed).map_err(bad)?),
            Self::Vision => Box::new(vision::VisionRows::new(seed).map_err(bad)?),
        })
    }
}

/// What [`generate`] did.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedTable {
    /// Where the table is.
    pub path: PathBuf,
    /// Whether it was written.
    pub outcome: Outcome,
    /// Its header.
    pub header: TableHeader,
    /// Seconds that writing, or checking, took.
    pub seconds: f64,
}

/// Writes `OUT/NAME.rows` with entities `0..rows`, unless the same table is there already, undamaged.
///
/// # Errors
/// More rows than the format's header can describe, a file that cannot be written, or a stop.
pub fn generate(kind: TableKind, rows: u64, seed: u64, out: &Path, stop: &Stop) -> Result<GeneratedTable, ModelsError> {
    let source = kind.source(seed)?;
    let header = TableHeader::new(source.schema().clone(), rows, 0, seed)
        .map_err(|e| ModelsError::Usage(format!("--rows {rows}: {e}")))?;
    let path = out.join(format!("{}.{EXTENSION}", kind.name()));
    if let Ok(found) = check::read_header(&path)
        && same_request(&found, &header)
        && check::sample(&path, &found, &*source, SAMPLED_ROWS).is_ok()
    {
        let mut progress = Progress::bytes(&format!("checking {}", path.display()), header.file_len());
        match check::verify(&path, &mut progress, stop) {
            Ok(header) => {
                let seconds = progress.seconds();
                return Ok(GeneratedTable {
                    path,
                    outcome: Outcome::UpToDate,
                    header,
                    seconds,
                });
            }
            Err(ModelsError::Interrupted) => return Err(ModelsError::Interrupted),
            // Damaged: written again below.
            Err(_) => {}
        }
    }
    let mut progress = Progress::bytes(&format!("writing {}", path.display()), header.file_len());
    let header = write::write(&path, &*source, header, &mut progress, stop)?;
    Ok(GeneratedTable {
        path,
        outcome: Outcome::Written,
        header,
        seconds: progress.seconds(),
    })
}

/// Whether a header is that of the table asked for, its block checksums aside.
fn same_request(found: &TableHeader, wanted: &TableHeader) -> bool {
    TableHeader {
        block_crcs: Vec::new(),
        ..found.clone()
    } == TableHeader {
        block_crcs: Vec::new(),
        ..wanted.clone()
    }
}
