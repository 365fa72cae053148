//! Errors of this crate, each with its place and advice. The binary turns them into exit codes.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use tierlab_storage::StorageError;

/// Error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Unusable arguments or config: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Refusal by the operating system.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// Attempted action, such as `write`.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Invalid file or object.
    #[error("{object}: {what}")]
    Bad {
        /// File or object.
        object: String,
        /// Fault and advice.
        what: String,
    },
    /// Model that the server would not serve.
    #[error("not imported: {0}")]
    Refused(String),
    /// Completed work whose result lacks some of the input: exit code 3.
    #[error("{0}")]
    Incomplete(String),
    /// Failure of a tier.
    #[error("{object} on the {tier} tier at {location}: {source}")]
    Tier {
        /// Object being accessed.
        object: String,
        /// Kind of the tier.
        tier: &'static str,
        /// Root, URL or endpoint of the tier.
        location: String,
        /// Error of the tier.
        source: StorageError,
    },
    /// Interrupt by Ctrl-C or SIGTERM.
    #[error("stopped on request; no incomplete file has a final name: run it again (only redis resumes an object)")]
    Interrupted,
}

impl ModelsError {
    /// Creates an error of the operating system about a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Creates an error about an invalid file or object.
    pub(crate) fn bad(object: &dyn Display, what: &dyn Display) -> Self {
        Self::Bad {
            object: object.to_string(),
            what: what.to_string(),
        }
    }

    /// Names the file in an error that does not name it.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Refused(what) => Self::Refused(format!("{}: {what}", file.display())),
            other => other,
        }
    }

    /// Returns the exit code: 2 for bad usage or config, 3 for an incomplete result, 1 otherwise.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Incomplete(_) => 3,
            _ => 1,
        }
    }
}
