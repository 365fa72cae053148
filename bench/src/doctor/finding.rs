//! Findings of the doctor. Plain data.

use serde::Serialize;

/// Levels of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// Slows runs, or prevents a way of reading.
    Warning,
    /// Not visible here.
    Unknown,
    Fine,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Subject, such as `read-ahead of vda`.
    pub(super) about: String,
    /// State of the subject.
    pub(super) found: String,
    /// Effect on a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<String>,
    /// Size of the effect, if measured here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<String>,
    /// Change to make.
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

    /// A warning; it also needs an effect and a change.
    pub(super) fn warning(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(Level::Warning, about, found)
    }

    pub(super) fn effect(mut self, effect: impl Into<String>) -> Self {
        self.effect = Some(effect.into());
        self
    }

    pub(super) fn change(mut self, change: impl Into<String>) -> Self {
        self.change = Some(change.into());
        self
    }

    /// The finding, or a fine one without effect and change if it is.
    pub(super) fn fine_if(self, is_fine: bool) -> Self {
        match is_fine {
            true => Self::fine(self.about, self.found),
            false => self,
        }
    }

    pub(super) fn measured(mut self, by: impl Into<String>) -> Self {
        self.measured = Some(by.into());
        self
    }
}
