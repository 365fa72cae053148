//! Errors in a config or a manifest.

/// A config or manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadModelFile(pub String);
