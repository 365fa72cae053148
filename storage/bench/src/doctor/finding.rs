//! What the doctor says: plain data.

use serde::Serialize;

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// It slows runs, or keeps a way of reading from being taken.
    Warning,
    /// It could not be seen here.
    Unknown,
    /// As it should be.
    Fine,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was looked at: `read-ahead of vda`.
    pub(super) about: String,
    /// What it is.
    pub(super) found: String,
    /// What that does to a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<String>,
    /// By how much, where it was measured here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<String>,
    /// How to change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<String>,
}

impl Finding {
    fn new(level: Level, about: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            level,
            about: about.into(),
            found: found.into(),
            effect: None,
            measured: None,
            change: None,
        }
    }

    pub(super) fn fine(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(Level::Fine, about, found)
    }

    pub(super) fn unknown(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(Level::Unknown, about, found)
    }

    /// With what it does, and how to change it.
    pub(super) fn warning(
        about: impl Into<String>,
        found: impl Into<String>,
        effect: impl Into<String>,
        change: impl Into<String>,
    ) -> Self {
        Self {
            effect: Some(effect.into()),
            change: Some(change.into()),
            ..Self::new(Level::Warning, about, found)
        }
    }

    pub(super) fn measured(mut self, by: impl Into<String>) -> Self {
        self.measured = Some(by.into());
        self
    }
}
