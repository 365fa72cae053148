//! The steps of a run under way: those that are finished, and which one is next.

use crate::progress::Progress;
use crate::store::journal::{FinishedStep, Journal, Points};
use tierlab_analysis::record::Purpose;
use tierlab_instrument::machine::quiet::Patience;

/// The steps of a run: those finished, and the journal that keeps them.
pub(super) struct Ledger {
    pub(super) journal: Journal,
    pub(super) points: Points,
    pub(super) progress: Progress,
    pub(super) unanswered: usize,
    pub(super) patience: Patience,
}

impl Ledger {
    /// Adds a step that the journal keeps.
    pub(super) fn add(&mut self, step: FinishedStep) {
        self.patience.saw(step.repeat.disturbed.as_deref());
        self.points.add(step);
    }
}

/// Which repeat of a point a step is, and which attempt at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) index: u32,
    /// Number of earlier attempts that were unanswered or disturbed.
    pub(super) attempt: u32,
    pub(super) seed: u64,
    /// Purpose of the measurement.
    pub(super) purpose: Purpose,
}
