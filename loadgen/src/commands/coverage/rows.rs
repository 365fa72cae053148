//! Rows of the table of coverage: what was simulated, and how often intervals contained the truth.

use super::laws::Law;

/// Bounds of the coverage of what is printed as solid.
pub(super) const WANTED: (f64, f64) = (0.92, 0.98);
/// Fewest solid trials by which a row is judged.
const JUDGED: usize = 50;

/// Simulated point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Law of the latencies.
    pub law: Law,
    /// Standard deviation of the logarithm of the repeats' factors.
    pub spread: f64,
    /// Share by which the latency grows from the first repeat to the last.
    pub drift: f64,
    /// Repeats of a point.
    pub repeats: usize,
    /// Samples in each repeat.
    pub samples: usize,
}

/// Outcome for one percentile, or for a paired ratio of medians.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Simulated point.
    pub setting: Setting,
    /// Figure: `p50`, `p99.9`, `B/A p50, paired`.
    pub what: String,
    /// Number of trials.
    pub trials: usize,
    /// Intervals of trials that print the figure as solid.
    pub solid: Tally,
    /// Intervals of all trials that print the figure, whatever its grade.
    pub printed: Tally,
    /// Trials that print the figure as rough, and those of them whose lower bound is at most the truth.
    pub rough: (usize, usize),
    /// Differences between the printed value and the truth, as shares of the truth.
    pub off: Vec<f64>,
}

/// Number of intervals and of those that contain the truth.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tally {
    /// Intervals.
    pub count: usize,
    /// Intervals that contain the truth.
    pub covered: usize,
    /// Sum of the intervals' upper end over their lower.
    pub widths: f64,
}

impl Tally {
    pub(super) fn count(&mut self, (lo, hi): (f64, f64), truth: f64) {
        self.count += 1;
        self.covered += usize::from(is_below(lo, truth) && truth <= hi * 1.001);
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
}

/// True if a lower end is at most the truth. A histogram's value stands for a bucket of a thousandth.
pub(super) fn is_below(lo: f64, truth: f64) -> bool {
    lo * 0.999 <= truth
}

impl Row {
    pub(super) fn new(setting: Setting, what: &str, trials: usize) -> Self {
        Self {
            setting,
            what: what.to_owned(),
            trials,
            solid: Tally::default(),
            printed: Tally::default(),
            rough: (0, 0),
            off: Vec::new(),
        }
    }

    /// Median difference between the printed value and the truth, as a share of the truth.
    #[must_use]
    pub fn median_off(&self) -> f64 {
        let mut off = self.off.clone();
        off.sort_by(f64::total_cmp);
        off.get(off.len() / 2).copied().unwrap_or(0.0)
    }

    /// True if solid intervals cover 92 to 98 %, within two standard deviations of the simulation, or are too few to tell.
    /// A drift widens intervals: it sets no upper bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        let allowed = |share: f64| 2.0 * (share * (1.0 - share) / self.solid.count.max(1) as f64).sqrt();
        let (least, most) = WANTED;
        let coverage = self.solid.coverage();
        let is_too_wide = self.setting.drift == 0.0 && coverage > most + allowed(most);
        self.solid.count < JUDGED || (coverage >= least - allowed(least) && !is_too_wide)
    }
}
