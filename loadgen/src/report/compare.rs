//! What changed between two runs, and what is noise.
//!
//! In: two runs with their histograms. Out: a [`Comparison`], as text or Markdown, and whether anything got worse.
//! Knows nothing of files or exit codes.
//!
//! Points are paired by all their factors; the repeats of two runs were not made side by side, so that they
//! are not paired. A percentile counts as changed only where
//! - both points are valid,
//! - it moved by at least [`SMALLEST_CHANGE`], and
//! - its 95 % interval, widened for the number of percentiles compared (Bonferroni), leaves out "no change".
//!
//! A point that was valid in A and is not in B is a regression as well: a gate that lets it pass would pass anything.

use super::units::{NONE, latency, percent};
use super::words;
use crate::analysis::curves::{Difference, difference, is_valid};
use crate::analysis::sections::{Estimate, OUTSIDE, Pairing};
use crate::record::{Environment, Point, Run};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A change smaller than this share is not worth a name, however certain.
pub const SMALLEST_CHANGE: f64 = 0.05;

const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// The bottom line of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing got worse by more than its noise.
    NoRegression,
    /// Something did: the process exits with 1.
    Regression,
    /// The runs have no valid point in common, so that nothing can be said: the process exits with 1.
    NothingInCommon,
}

/// What became of a percentile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Certainly slower.
    Slower,
    /// Certainly faster.
    Faster,
    /// Not told apart from noise, or too small to matter.
    Same,
    /// Too few samples, or too few blocks, to tell.
    Unknown,
}

/// One percentile of one point in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The point's name.
    pub point: String,
    /// `p50`, `p95` or `p99`.
    pub percentile: &'static str,
    /// In A and in B, in microseconds.
    pub us: Option<(f64, f64)>,
    /// How B relates to A, with 95 % intervals of its own; `None` where it is unknown.
    pub difference: Option<Difference>,
    /// What that means among all the percentiles compared.
    pub verdict: Verdict,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Names of A and B.
    pub names: (String, String),
    /// Every percentile of every point that is valid in both.
    pub changes: Vec<Change>,
    /// Points valid in A that are not in B, with B's verdict.
    pub lost: Vec<String>,
    /// What else is to be known: points of one run only, other machines.
    pub notes: Vec<String>,
}

/// Compares B with A.
pub(crate) fn compare(a: &Run, b: &Run) -> Comparison {
    let mut comparison = Comparison {
        names: (a.name.clone(), b.name.clone()),
        changes: Vec::new(),
        lost: Vec::new(),
        notes: machine_notes(&a.environment, &b.environment),
    };
    let mut pairs = Vec::new();
    for point in &a.points {
        let name = words::name(a, &point.factors);
        match b.points.iter().find(|other| other.factors == point.factors) {
            None => comparison.notes.push(format!("only in A: {name}")),
            Some(other) if is_valid(point) && is_valid(other) => pairs.push((name, point, other)),
            Some(other) if is_valid(point) => comparison.lost.push(format!("{name}: {}", verdict_of(other))),
            Some(_) => comparison.notes.push(format!("not compared, not valid in A: {name}")),
        }
    }
    for point in &b.points {
        if !a.points.iter().any(|other| other.factors == point.factors) {
            comparison
                .notes
                .push(format!("only in B: {}", words::name(b, &point.factors)));
        }
    }
    let outside = OUTSIDE / (pairs.len() * PERCENTILES.len()).max(1) as f64;
    for (name, a, b) in pairs {
        for (percentile, quantile) in PERCENTILES {
            comparison
                .changes
                .push(change(&name, percentile, (a, b), quantile, outside));
        }
    }
    comparison
}

fn change(name: &str, percentile: &'static str, (a, b): (&Point, &Point), quantile: f64, outside: f64) -> Change {
    let difference = difference(a, b, quantile, Pairing::Independent);
    let verdict = match &difference {
        None => Verdict::Unknown,
        Some(difference) => judge(difference.log_ratio, outside),
    };
    // B - A and B / A determine both.
    let us = difference.as_ref().filter(|d| d.ratio.value != 1.0).map(|d| {
        let a = d.delta_us.value / (d.ratio.value - 1.0);
        (a, a + d.delta_us.value)
    });
    let us = us.or_else(|| {
        let of = |point: &Point| {
            let summary = point.summary.as_ref()?;
            let percentile = match percentile {
                "p50" => summary.p50_us,
                "p95" => summary.p95_us,
                _ => summary.p99_us,
            };
            percentile.map(|interval| interval.value)
        };
        Some((of(a)?, of(b)?))
    });
    Change {
        point: name.to_owned(),
        percentile,
        us,
        difference,
        verdict,
    }
}

/// Large enough, and certain with no more than the share `outside` left out.
fn judge(log_ratio: Estimate, outside: f64) -> Verdict {
    let interval = log_ratio.interval(outside);
    let smallest = (1.0 + SMALLEST_CHANGE).ln();
    if interval.lo > 0.0 && interval.value >= smallest {
        Verdict::Slower
    } else if interval.hi < 0.0 && interval.value <= -smallest {
        Verdict::Faster
    } else {
        Verdict::Same
    }
}

fn verdict_of(point: &Point) -> String {
    point
        .summary
        .as_ref()
        .map_or_else(|| "not summarised".to_owned(), |summary| summary.verdict.to_string())
}

fn machine_notes(a: &Environment, b: &Environment) -> Vec<String> {
    let cores = |e: &Environment| e.cores.to_string();
    let facts = [
        ("CPU", a.cpu.clone(), b.cpu.clone()),
        ("cores", cores(a), cores(b)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("ONNX Runtime", a.onnxruntime.clone(), b.onnxruntime.clone()),
        ("GPUs", a.gpus.join(", "), b.gpus.join(", ")),
    ];
    let differing = facts.into_iter().filter(|(_, a, b)| a != b);
    differing
        .map(|(what, a, b)| format!("the machines differ in {what}: `{a}` and `{b}`"))
        .collect()
}

impl Comparison {
    /// The bottom line.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if !self.lost.is_empty() || self.changes.iter().any(|change| change.verdict == Verdict::Slower) {
            Outcome::Regression
        } else if self.changes.iter().all(|change| change.verdict == Verdict::Unknown) {
            Outcome::NothingInCommon
        } else {
            Outcome::NoRegression
        }
    }

    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = self.table();
        table.load_style(super::table::STYLE);
        self.around(&table, "  ")
    }

    /// For a pull request.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut table = self.table();
        table.load_style(ASCII_MARKDOWN);
        self.around(&table, "- ")
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["point", "", "A", "B", "B / A [95 %]", "verdict"]);
        for change in &self.changes {
            let [a, b] = change
                .us
                .map_or([NONE.to_owned(), NONE.to_owned()], |(a, b)| [latency(a), latency(b)]);
            let ratio = change.difference.map_or_else(
                || NONE.to_owned(),
                |Difference { ratio, .. }| format!("{:.2} [{:.2}–{:.2}]", ratio.value, ratio.lo, ratio.hi),
            );
            let verdict = match change.verdict {
                Verdict::Slower => "SLOWER",
                Verdict::Faster => "faster",
                Verdict::Same => "same",
                Verdict::Unknown => "too few samples",
            };
            table.add_row([change.point.as_str(), change.percentile, &a, &b, &ratio, verdict]);
        }
        for index in 2..5 {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn around(&self, table: &Table, bullet: &str) -> String {
        let count = |verdict| self.changes.iter().filter(|change| change.verdict == verdict).count();
        let mut text = format!("A: {}\nB: {}\n\n{table}\n\n", self.names.0, self.names.1);
        text += &match self.outcome() {
            Outcome::NothingInCommon => "Nothing to compare: no point is valid in both runs.".to_owned(),
            _ => format!(
                "{} slower, {} faster, {} the same within their noise or {}, {} no longer valid.",
                count(Verdict::Slower),
                count(Verdict::Faster),
                count(Verdict::Same),
                percent(SMALLEST_CHANGE),
                self.lost.len()
            ),
        };
        text.push('\n');
        for line in self
            .lost
            .iter()
            .map(|lost| format!("no longer valid: {lost}"))
            .chain(self.notes.iter().cloned())
        {
            text += &format!("{bullet}{line}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_must_be_large_and_certain() {
        let ratio = |value: f64, error| Estimate {
            value: value.ln(),
            error,
            freedom: 4.0,
        };
        assert_eq!(judge(ratio(1.2, 0.04), 0.05), Verdict::Slower);
        assert_eq!(judge(ratio(1.2, 0.04), 0.05 / 100.0), Verdict::Same, "not among many");
        assert_eq!(judge(ratio(1.2, 0.1), 0.05), Verdict::Same, "noise");
        assert_eq!(
            judge(ratio(1.03, 0.001), 0.05),
            Verdict::Same,
            "certain, and of no size"
        );
        assert_eq!(judge(ratio(0.8, 0.03), 0.05), Verdict::Faster);
    }
}
