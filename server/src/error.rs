//! Why a configuration cannot be used, a model cannot be loaded, or a server did not start or end well.

use std::time::Duration;
use tierlab_storage::{ErrorKind, StorageError};

/// A configuration that cannot be used; the message names file and key. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

impl ConfigError {
    /// A value that turned out to be unusable, by its key.
    pub(crate) fn at(key: &str, what: impl std::fmt::Display) -> Self {
        Self(format!("`{key}`: {what}"))
    }
}

/// A configuration that cannot be used, for this reason.
pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

/// A model that cannot be loaded; the message names the object, by its path below the tier's root: clients read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct LoadError {
    pub(crate) message: String,
    /// The same with what only the operator may know: addresses, folders, what the tier said.
    pub(crate) detailed: Option<String>,
    /// True if the same objects may load later: the tier failed, not its content.
    pub(crate) passing: bool,
}

/// Bytes of the message of a [`LoadError`] at most: every request for the model is told it, and it may quote a file.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push_str(" …");
    }
    message.truncate(message.trim_end().len());
    message
}

impl LoadError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: shortened(message.into()),
            detailed: None,
            passing: false,
        }
    }

    /// The same objects may load later.
    pub(crate) fn passing(self) -> Self {
        Self { passing: true, ..self }
    }

    /// With words for the log.
    pub(crate) fn with_detail(self, detailed: impl Into<String>) -> Self {
        Self {
            detailed: Some(detailed.into()),
            ..self
        }
    }

    /// Message for the log and for a failed start.
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

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A tier cannot be opened.
    #[error("tier `{kind}`: {error}")]
    Tier {
        /// Its kind.
        kind: &'static str,
        /// Error of the tier.
        error: StorageError,
    },
    /// ONNX Runtime, or a model, cannot be loaded.
    #[error("{0}")]
    Load(String),
    /// A value of the configuration that could not be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// Something was still under way at the end of the drain time; the text says what.
    #[error("not drained within {} ms (`drain.timeout_ms`): {left}", limit.as_millis())]
    Drain {
        /// The drain time.
        limit: Duration,
        /// Work in progress.
        left: String,
    },
}

impl From<LoadError> for ServerError {
    fn from(error: LoadError) -> Self {
        Self::Load(error.for_operator().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_quotes_a_file_is_bounded_and_ends_with_its_last_word() {
        let quoted = LoadError::at("models/m/config.toml", "é".repeat(1 << 20));
        assert!(quoted.message.len() <= MAX_MESSAGE_BYTES + 10 && quoted.message.ends_with("é …"));
        assert_eq!(LoadError::new("recursion limit\n").message, "recursion limit");
    }
}
