//! Errors of reading and writing results.

use std::path::{Path, PathBuf};

/// Reason for which a result folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be written or read.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// File or folder.
        path: PathBuf,
        /// System error.
        source: std::io::Error,
    },
    /// Invalid `run.json`, or one that could not be created.
    #[error("{}: {source}", path.display())]
    Json {
        /// File or folder.
        path: PathBuf,
        /// Error with its position.
        source: serde_json::Error,
    },
    /// `run.json` of another version of this program.
    #[error("{}: schema_version is {found}, this program reads {}; use the version that wrote it (environment.version)",
            path.display(), tierlab_analysis::record::SCHEMA_VERSION)]
    Schema {
        /// File or folder.
        path: PathBuf,
        /// Version found.
        found: u32,
    },
    /// The journal of a run under way could not be read or written.
    #[error(transparent)]
    Journal(#[from] tierlab_instrument::journal::JournalError),
    /// A histogram log is damaged.
    #[error("{}: entry {entry}: {what}; restore the file, or measure again", path.display())]
    Entry {
        /// File or folder.
        path: PathBuf,
        /// Number of the entry, from 1.
        entry: usize,
        /// Error message.
        what: String,
    },
    /// Invalid place of histograms: missing, duplicate, or outside the run's folder.
    #[error("hdr_file `{0}` must be a plain path below the run's folder, and of one repeat only")]
    HdrFile(String),
    /// CSV that could not be created.
    #[error("{}: {source}", path.display())]
    Csv {
        /// File or folder.
        path: PathBuf,
        /// Cause of the error.
        source: csv::Error,
    },
}

impl StoreError {
    /// Creates an error about a file or folder.
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Advice for a file that does not exist.
fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; a run's folder is wanted, as results/<run>",
        _ => "",
    }
}
