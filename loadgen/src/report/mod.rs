//! From a summarised run to what people and other tools read.
//!
//! In: a [`Run`] whose points are summarised. Out: a result folder (`run.json`, `summary.csv`, `hdr/*.hdr`,
//! `report.html`), a terminal table, and comparisons. Must not measure, and must not compute statistics of its own.

use crate::record::{Factors, Run};
use std::path::{Path, PathBuf};

/// Why a result folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file could not be written or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Name of the file of a repeat's histograms, relative to the run's folder; goes into `Repeat::hdr_file`.
#[must_use]
pub fn hdr_file(factors: &Factors, repeat: u32) -> String {
    format!("hdr/{}-{repeat}.hdr", factors.tier)
}

/// Writes a result folder.
///
/// # Errors
/// A file cannot be written.
pub fn write(run: &Run, dir: &Path) -> Result<(), ReportError> {
    let _ = (run, dir);
    Ok(())
}

/// Prints the table of a run to stdout.
pub fn print_table(run: &Run) {
    let _ = run;
}

/// Reads a run back from its folder, histograms included.
///
/// # Errors
/// A file is missing, damaged or of another schema.
pub fn load(dir: &Path) -> Result<Run, ReportError> {
    Err(ReportError::Io { path: dir.to_owned(), source: std::io::ErrorKind::NotFound.into() })
}

/// `report RUN...`: rewrites `summary.csv` and `report.html` of every run from its `run.json` and histograms, and
/// prints the table of each. With several runs, `combined` is where one report over all of them goes.
///
/// # Errors
/// As [`load`] and [`write`].
pub fn rewrite(dirs: &[PathBuf], combined: Option<&Path>) -> Result<(), ReportError> {
    let _ = combined;
    for dir in dirs {
        load(dir)?;
    }
    Ok(())
}

/// What `compare` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing got worse by more than its noise.
    NoRegression,
    /// Something did: the process exits with 1.
    Regression,
}

/// `compare A B`: prints how B differs from A and says whether anything got worse.
///
/// # Errors
/// As [`load`].
pub fn compare(a: &Path, b: &Path, markdown: bool) -> Result<Outcome, ReportError> {
    let _ = markdown;
    load(a)?;
    load(b)?;
    Ok(Outcome::NoRegression)
}
