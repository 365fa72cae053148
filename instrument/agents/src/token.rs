//! Tokens, by the variable or the file that contains them. Only the names are sent, written or printed.

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum length of a token in bytes: servers accept only a few KiB of headers.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// Source of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenSource {
    /// Environment variable.
    Env(String),
    /// File with the token in its first line.
    File(PathBuf),
}

impl TokenSource {
    /// Returns the token: the first line of its source.
    ///
    /// # Errors
    /// The variable or file is missing or empty. The message contains no value.
    pub fn read(&self) -> Result<String> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|_| anyhow!("{self} is not set: set it to the token"))?,
            Self::File(path) => token_file(path)?,
        };
        let token = text.lines().next().unwrap_or_default().trim();
        if token.is_empty() {
            bail!("{self} is empty: store the token in it");
        }
        Ok(token.to_owned())
    }
}

impl fmt::Display for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the variable {name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

fn token_file(path: &Path) -> Result<String> {
    use std::io::Read as _;
    let at = |error: std::io::Error| anyhow!("{}: cannot read the token: {error}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(at)?;
    file.take(MAX_TOKEN_BYTES + 1).read_to_string(&mut text).map_err(at)?;
    if text.len() as u64 > MAX_TOKEN_BYTES {
        bail!("{}: too long for a token", path.display());
    }
    Ok(text)
}
