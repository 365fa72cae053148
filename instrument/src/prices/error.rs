//! Errors of prices.

use std::path::{Path, PathBuf};

/// Reason why prices cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PricingError {
    /// The file cannot be read.
    #[error("cannot read prices {}: {source}", path.display())]
    Read {
        /// The prices' file.
        path: PathBuf,
        /// System error.
        source: std::io::Error,
    },
    /// The file is no valid TOML, or has a key that is unknown or of a wrong type.
    #[error("prices {}: {source}", path.display())]
    Parse {
        /// The prices' file.
        path: PathBuf,
        /// Error with its position.
        source: Box<toml::de::Error>,
    },
    /// A price is wrong or missing.
    #[error("prices {}: {what}", path.display())]
    Invalid {
        /// The prices' file.
        path: PathBuf,
        /// The key, its value, and what to do.
        what: String,
    },
    /// A variant cannot run on its instance.
    #[error("prices {}: variant `{variant}`: {what}; choose another `instance` for it: {known}", path.display())]
    Impossible {
        /// The prices' file.
        path: PathBuf,
        /// The variant.
        variant: String,
        /// Missing property of the instance, or part that does not fit on it.
        what: String,
        /// Instances of the file.
        known: String,
    },
}

impl PricingError {
    pub(super) fn invalid(path: &Path, what: String) -> Self {
        let path = path.to_owned();
        Self::Invalid { path, what }
    }
}
