//! Findings of the doctor, and their text for a terminal.

use crate::machine::Environment;
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt::Write as _;
use tierlab_instrument::units::bytes;

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
    /// Slowdown factor of the affected reads, if known; infinite (null in JSON) if nothing works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times: Option<f64>,
    /// Measured size of the effect, if known.
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
            times: None,
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

    /// Creates a warning; it also needs an effect and a change.
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

    pub(super) const fn times(mut self, factor: f64) -> Self {
        self.times = Some(factor);
        self
    }

    /// Returns the finding, or a fine one without effect and change if `is_fine`.
    pub(super) fn fine_if(self, is_fine: bool) -> Self {
        match is_fine {
            true => Self {
                measured: self.measured,
                ..Self::fine(self.about, self.found)
            },
            false => self,
        }
    }

    /// Sort key: warnings, the worst first, then unknown findings, then the rest.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let factor = |finding: &Self| finding.times.unwrap_or(1.0);
        let worse = factor(other).total_cmp(&factor(self));
        self.level.cmp(&other.level).then(worse)
    }

    pub(super) fn measured(mut self, by: impl Into<String>) -> Self {
        self.measured = Some(by.into());
        self
    }
}

/// Text of all findings, warnings first.
pub(super) fn text(machine: &Environment, tier: Option<&str>, findings: &[Finding]) -> String {
    let host = &machine.host;
    let (cores, cpu, memory) = (host.cores, &host.cpu, bytes(host.memory_bytes));
    let (kernel, version) = (&host.kernel, &machine.version);
    let mut out = format!("{cores} x {cpu}, {memory}, Linux {kernel}, tierlab {version}\n");
    if let Some(tier) = tier {
        let _ = writeln!(out, "tier {tier}");
    }
    let warnings = findings.iter().filter(|finding| finding.level == Level::Warning);
    let _ = match warnings.count() {
        0 => writeln!(out, "no causes of slow runs found"),
        1 => writeln!(out, "1 cause of slow runs found"),
        count => writeln!(out, "{count} causes of slow runs found"),
    };
    for finding in findings {
        one(&mut out, finding);
    }
    out
}

fn one(out: &mut String, finding: &Finding) {
    let word = match finding.level {
        Level::Warning => "WARNING",
        Level::Unknown => "unknown",
        Level::Fine => "fine",
    };
    let _ = writeln!(out, "{word:<9}{}: {}", finding.about, finding.found);
    if let Some(effect) = &finding.effect {
        let _ = writeln!(out, "{:9}effect:   {effect}", "");
        let how = finding.measured.as_deref().unwrap_or("not measured");
        let _ = writeln!(out, "{:9}size:     {how}", "");
    } else if let Some(measured) = &finding.measured {
        let _ = writeln!(out, "{:9}measured: {measured}", "");
    }
    if let Some(change) = &finding.change {
        let _ = writeln!(out, "{:9}change:   {change}", "");
    }
}
