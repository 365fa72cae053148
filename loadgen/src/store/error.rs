//! Why a result could not be written or read.

use std::path::{Path, PathBuf};

/// Why a result folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be written or read.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// System error.
        source: std::io::Error,
    },
    /// `run.json` is not one, or could not be made.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Error with its position.
        source: serde_json::Error,
    },
    /// `run.json` is of another version of this program.
    #[error("{}: schema_version is {found}, this program reads {}; use the version that wrote it (environment.version)",
            path.display(), tierlab_analysis::record::SCHEMA_VERSION)]
    Schema {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
    },
    /// The journal of a run under way could not be read or written.
    #[error(transparent)]
    Journal(#[from] tierlab_instrument::journal::JournalError),
    /// A histogram log is damaged.
    #[error("{}: entry {entry}: {what}; restore the file, or measure again", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Which entry, from 1.
        entry: usize,
        /// Error message.
        what: String,
    },
    /// The run does not say where histograms go, twice the same place, or a place outside its folder.
    #[error("hdr_file `{0}` must be a plain path below the run's folder, and of one repeat only")]
    HdrFile(String),
    /// The CSV could not be made.
    #[error("{}: {source}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// Cause of the error.
        source: csv::Error,
    },
}

impl StoreError {
    /// For a file or folder.
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
