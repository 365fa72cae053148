//! Findings of the doctor with their text for a terminal, and the system files that they come from.

use crate::machine::Environment;
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tierlab_instrument::units::bytes;

/// Levels of findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// Slows runs, or prevents a way of reading.
    Warning,
    /// Not visible here.
    Unknown,
    #[default]
    Fine,
}

/// A finding.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    /// Measured size of the effect, or the figure that the setting is judged by, if known.
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
            ..Self::default()
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
    let _ = writeln!(out, "causes of slow runs found: {}", warnings.count());
    for finding in findings {
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
    out
}

/// Maximum size of a file; the kernel's are far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum entries of a folder.
const MAX_ENTRIES: usize = 4096;

/// System files below a root: `/`, or a folder of a test. Paths have no first slash.
#[derive(Debug, Clone)]
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Text of a file, trimmed; `None` if it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut text = String::new();
        let file = std::fs::File::open(self.0.join(path)).ok()?;
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// Number in a file.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Sorted names in a folder; empty if it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MAX_ENTRIES).collect();
        names.sort();
        names
    }

    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.0.join(path).exists()
    }

    /// Last part of a link's target.
    pub(super) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let to = std::fs::read_link(self.0.join(path)).ok()?;
        Some(to.file_name()?.to_str()?.to_owned())
    }
}

/// Selected word of a kernel list, such as `mq-deadline` in `none [mq-deadline]`.
pub(super) fn bracketed(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}
