//! Findings of the doctor: plain data.

use serde::Serialize;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// Slows runs, or prevents a way of reading.
    Warning,
    /// Not visible here.
    Unknown,
    /// In order.
    Fine,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Subject: `read-ahead of vda`.
    pub(super) about: String,
    /// Value found.
    pub(super) found: String,
    /// Effect on a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<String>,
    /// Size of the effect, if it was measured here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<String>,
    /// Advice for a change.
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

    /// Creates a warning with its effect and advice.
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
