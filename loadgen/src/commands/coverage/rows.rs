//! Rows of the table of coverage: what was simulated, and how often intervals contained the truth.

use super::laws::Law;

/// Time blocks of a repeat, which the bootstrap draws from.
pub(super) const BLOCKS: usize = 5;
/// What coverage is asked for, over all trials of a row that a report prints.
pub const WANTED: f64 = 0.92;
/// A row counts as printed from this share of its trials on.
const PRINTED: f64 = 0.005;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Where latencies come from.
    pub law: Law,
    /// How much repeats differ: the standard deviation of the logarithm of their factor.
    pub spread: f64,
    /// Repeats of a point.
    pub repeats: usize,
    /// Samples in each.
    pub samples: usize,
}

/// What was found for one percentile, or for a paired ratio of medians.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was simulated.
    pub setting: Setting,
    /// `p50`, `p95`, `p99`, `B/A p50`, …
    pub what: String,
    /// Trials.
    pub trials: usize,
    /// Trials in which a report would print it.
    pub printed: usize,
    /// The intervals of the reports, over all trials.
    pub sections: Tally,
    /// Those of a plain two-level bootstrap of the first points, and of one corrected for few repeats; absent for ratios and
    /// for long repeats.
    pub bootstrap: Option<[Tally; 2]>,
}

/// How a method fared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Intervals.
    pub count: usize,
    /// Of these, those that contained the truth.
    pub covered: usize,
    /// Sum of the intervals' upper end over their lower.
    pub widths: f64,
}

impl Tally {
    pub(super) fn count(&mut self, (lo, hi): (f64, f64), truth: f64) {
        self.count += 1;
        // A histogram's value stands for a bucket of a thousandth.
        self.covered += usize::from(lo * 0.999 <= truth && truth <= hi * 1.001);
        self.widths += hi / lo.max(1e-9);
    }

    /// Covered share.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.covered as f64 / self.count.max(1) as f64
    }

    /// Mean of the intervals' upper end over their lower.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.widths / self.count.max(1) as f64
    }

    /// Whether it covers what was promised, within what so many trials can tell (two standard deviations).
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.coverage() >= WANTED - 2.0 * (0.05_f64 * 0.95 / self.count.max(1) as f64).sqrt()
    }
}

impl Row {
    pub(super) fn new(setting: Setting, what: &str, trials: usize) -> Self {
        Self {
            setting,
            what: what.to_owned(),
            trials,
            printed: 0,
            sections: Tally::default(),
            bootstrap: None,
        }
    }

    /// Covered share of all trials.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.sections.coverage()
    }

    /// Whether reports print it at all.
    #[must_use]
    pub fn is_printed(&self) -> bool {
        self.printed as f64 > PRINTED * self.trials as f64
    }

    /// Whether it is as it should be: where it is ever printed, the intervals of all trials cover what was promised.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.is_printed() || self.sections.is_enough()
    }
}
