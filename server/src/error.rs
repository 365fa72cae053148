//! Errors of configurations, of loading models, and of a server's start and end.

use std::time::Duration;
use tierlab_storage::{ErrorKind, StorageError};

/// Invalid configuration; the message names file and key. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

impl ConfigError {
    /// Error about an invalid value of a key.
    pub(crate) fn at(key: &str, message: impl std::fmt::Display) -> Self {
        Self(format!("`{key}`: {message}"))
    }
}

/// Returns a configuration error.
pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

/// Failed load of a model. The message names the object by its path below the tier's root, because clients read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct LoadError {
    pub(crate) message: String,
    /// Message with details only for the operator: addresses, folders, the tier's own text.
    pub(crate) detailed: Option<String>,
    /// True if the same objects may load later: the tier failed, not its content, or a feature table cannot be opened.
    pub(crate) transient: bool,
}

/// Maximum bytes of the message of a [`LoadError`]: it is sent to every request for the model, and may quote a file.
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
            transient: false,
        }
    }

    /// Marks the error as temporary: the same objects may load later.
    pub(crate) fn transient(mut self) -> Self {
        self.transient = true;
        self
    }

    /// Adds a detailed message for the log.
    pub(crate) fn with_detail(mut self, detailed: impl Into<String>) -> Self {
        self.detailed = Some(detailed.into());
        self
    }

    /// Message for the log and for a failed start.
    pub(crate) fn for_operator(&self) -> &str {
        self.detailed.as_deref().unwrap_or(&self.message)
    }

    pub(crate) fn at(object: impl std::fmt::Display, message: impl std::fmt::Display) -> Self {
        Self::new(format!("{object}: {message}"))
    }
}

impl From<StorageError> for LoadError {
    fn from(error: StorageError) -> Self {
        use ErrorKind::{Corrupt, Invalid, NotFound, OutOfRange};
        let is_permanent = matches!(error.kind(), NotFound | Corrupt | Invalid | OutOfRange);
        Self {
            message: error.for_clients(),
            detailed: Some(error.to_string()),
            transient: !is_permanent,
        }
    }
}

/// Error of a server's start or end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A tier cannot be opened.
    #[error("tier `{kind}`: {error}")]
    Tier {
        /// Kind of the tier.
        kind: &'static str,
        /// Error of the tier.
        error: StorageError,
    },
    /// ONNX Runtime or a model cannot be loaded.
    #[error("{0}")]
    Load(String),
    /// Invalid configuration value.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// Work was still in progress at the end of the drain time.
    #[error("not drained within {} ms (`drain.timeout_ms`): {left}", limit.as_millis())]
    Drain {
        /// Drain time.
        limit: Duration,
        /// Description of the work in progress.
        left: String,
    },
}

impl ServerError {
    /// True if the configuration is wrong, a key of a tier or of its cache included. Exit code 2.
    pub(crate) fn is_configuration(&self) -> bool {
        match self {
            Self::Config(_) => true,
            Self::Tier { error, .. } => error.kind() == ErrorKind::Invalid,
            Self::Load(_) | Self::Drain { .. } => false,
        }
    }
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
