//! What is wrong with a configuration, in words that name the file and the key.

/// A configuration that cannot be used; the message names file and key. Exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(super) String);

impl ConfigError {
    /// A value that turned out to be unusable, by its key.
    pub(crate) fn at(key: &str, what: impl std::fmt::Display) -> Self {
        Self(format!("`{key}`: {what}"))
    }
}

pub(super) fn fail<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}
