//! Seeded rows in the files that public data sets come in, at any size, so that an import can be tried without fetching one.
//!
//! In: which, how many rows, a seed. Out: a file. The columns, their types and where values are missing are those of the public files;
//! the values are drawn, and say nothing of clicks or of New York. A row depends on the seed and its number only.

mod criteo;
mod draw;
mod taxi;

use crate::error::ModelsError;
use crate::staged::StagedFile;
use crate::stop::Stop;
use clap::ValueEnum;
use std::path::Path;
use std::time::Instant;

/// Whose files they look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dataset {
    /// Criteo's display advertising: text with tabs and without a header line; a label, 13 integers and 26 categories as 8
    /// hexadecimal digits, many of them missing
    Criteo,
    /// Yellow taxi trips as New York's Taxi and Limousine Commission publishes them, in Parquet, with its columns of 2024
    Taxi,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// The file's length.
    pub bytes: u64,
    /// What it took.
    pub seconds: f64,
}

/// Writes so many rows to a file that is not there yet.
///
/// # Errors
/// A file that is there, or cannot be written; a stop. Then nothing new stays at `to`.
pub fn write(dataset: Dataset, rows: u64, seed: u64, to: &Path, stop: &Stop) -> Result<Written, ModelsError> {
    if to.exists() {
        let what = "there is a file already; remove it, or name another by --to";
        return Err(ModelsError::bad(&to.display(), &what));
    }
    let began = Instant::now();
    let staged = StagedFile::create(to)?;
    match dataset {
        Dataset::Criteo => criteo::write(&staged, rows, seed, stop)?,
        Dataset::Taxi => taxi::write(&staged, rows, seed, stop)?,
    }
    let about = staged.file().metadata();
    let bytes = about.map_err(ModelsError::io("look at", staged.partial()))?.len();
    staged.commit()?;
    Ok(Written {
        bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}
