//! Whether there is an answer. In: how all stand. Out: the outcome and the best. Knows nothing of runs.

use super::next::CONFIRM;
use super::standing::Lab;
use crate::record::{AnswerOutcome, MeetsObjective};

/// What the steps together say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verdict {
    /// Whether there is an answer.
    pub(super) outcome: AnswerOutcome,
    /// The best, or the most likely one.
    pub(super) best: Option<usize>,
    /// Whether fresh steps confirm it.
    pub(super) confirmed: bool,
    /// Whether they contradict it.
    pub(super) contradicted: bool,
    /// Fresh steps that are missing, where that is all that is.
    pub(super) missing: u32,
}

impl Verdict {
    /// Of a lab.
    #[must_use]
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let undecided = Self {
            outcome: AnswerOutcome::Undecided,
            // What does not meet the objective is no answer, however little is known of the others.
            best: lab
                .leader()
                .filter(|&best| lab.standings[best].outcome != MeetsObjective::NotMet),
            confirmed: false,
            contradicted: false,
            missing: 0,
        };
        if lab.none_meets() {
            return Self {
                outcome: AnswerOutcome::None,
                best: None,
                ..undecided
            };
        }
        let Some(best) = lab.decided() else {
            return undecided;
        };
        let fresh = lab.confirmation(best, lab.decisive_rps(best));
        let confirmed = !fresh.contradicted && fresh.usable >= CONFIRM;
        Self {
            outcome: if confirmed {
                AnswerOutcome::Decided
            } else {
                AnswerOutcome::Undecided
            },
            best: Some(best),
            confirmed,
            contradicted: fresh.contradicted,
            missing: CONFIRM.saturating_sub(fresh.usable),
        }
    }
}
