//! What can go wrong here: what, where, and what to do next. The binary turns it into an exit code.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use tierlab_storage::StorageError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Arguments or a config that cannot be used: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// What was tried, as `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file or object that is not what it should be.
    #[error("{object}: {what}")]
    Bad {
        /// The file or object.
        object: String,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A model that the server would not serve.
    #[error("not imported: {0}")]
    Refused(String),
    /// The work was done, and some of its input is missing from the result: exit code 3.
    #[error("{0}")]
    Incomplete(String),
    /// A tier failed.
    #[error("{object} on the {tier} tier at {location}: {source}")]
    Tier {
        /// The object.
        object: String,
        /// The tier's kind.
        tier: &'static str,
        /// The tier's root, URL or endpoint.
        location: String,
        /// The tier's answer.
        source: StorageError,
    },
    /// Somebody pressed Ctrl-C, or sent SIGTERM.
    #[error("stopped on request; nothing half-written was left under a final name, and the same command starts over")]
    Interrupted,
}

impl ModelsError {
    /// An error of the operating system about a path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// A file or object that is not what it should be.
    pub(crate) fn bad(object: &dyn Display, what: &dyn Display) -> Self {
        Self::Bad {
            object: object.to_string(),
            what: what.to_string(),
        }
    }

    /// The same, of a file, where the error does not name it.
    pub(crate) fn of(self, file: &Path) -> Self {
        match self {
            Self::Refused(what) => Self::Refused(format!("{}: {what}", file.display())),
            other => other,
        }
    }

    /// The process's exit code: 2 for bad usage or config, 3 for an incomplete result, 1 otherwise.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Incomplete(_) => 3,
            _ => 1,
        }
    }
}
