//! Steps of a run in progress: the finished ones, and the next.

use crate::progress::Progress;
use crate::store::journal::{FinishedStep, Journal, Points};
use tierlab_analysis::record::Purpose;
use tierlab_instrument::machine::quiet::Patience;

/// Finished steps of a run, with the journal that stores them.
pub(super) struct Ledger {
    pub(super) journal: Journal,
    pub(super) points: Points,
    pub(super) progress: Progress,
    pub(super) unanswered: usize,
    pub(super) patience: Patience,
}

impl Ledger {
    /// Adds a step that is in the journal.
    pub(super) fn add(&mut self, step: FinishedStep) {
        self.patience.saw(step.repeat.disturbed.as_deref());
        self.points.add(step);
    }
}

/// Repeat of a point, and attempt at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) index: u32,
    /// Number of earlier attempts that were unanswered or disturbed.
    pub(super) attempt: u32,
    pub(super) seed: u64,
    /// Purpose of the measurement.
    pub(super) purpose: Purpose,
}
