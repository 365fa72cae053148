//! Why a server did not start, or did not end well.

use crate::config::ConfigError;
use crate::models::error::LoadError;
use std::time::Duration;
use tierlab_storage::StorageError;

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A tier cannot be opened.
    #[error("tier `{kind}`: {error}")]
    Tier {
        /// Its kind.
        kind: &'static str,
        /// What it said.
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
        /// What was under way.
        left: String,
    },
}

impl From<LoadError> for ServerError {
    fn from(error: LoadError) -> Self {
        Self::Load(error.for_operator().to_owned())
    }
}
