//! Why a model cannot be loaded.

use tierlab_storage::{ErrorKind, StorageError};

/// A model that cannot be loaded; the message names the object, by its path below the tier's root: clients read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct LoadError {
    pub(crate) message: String,
    /// The same with what only the operator may know: addresses, folders, what the tier said.
    pub(crate) detailed: Option<String>,
    /// Whether the same objects may load at another time: the tier failed, not what lies on it.
    pub(crate) passing: bool,
}

impl LoadError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            detailed: None,
            passing: false,
        }
    }

    /// With words for the log.
    pub(crate) fn with_detail(self, detailed: impl Into<String>) -> Self {
        Self {
            detailed: Some(detailed.into()),
            ..self
        }
    }

    /// What the log says of it, and a start that fails.
    pub(crate) fn for_operator(&self) -> &str {
        self.detailed.as_deref().unwrap_or(&self.message)
    }

    pub(crate) fn at(object: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        Self::new(format!("{object}: {what}"))
    }
}

impl From<StorageError> for LoadError {
    fn from(error: StorageError) -> Self {
        let lasting = matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::OutOfRange
        );
        Self {
            message: error.for_clients(),
            detailed: Some(error.to_string()),
            passing: !lasting,
        }
    }
}
