//! Whether there is an answer. In: how all stand. Out: the outcome and the best. Knows nothing of runs.

use super::next::CONFIRM;
use super::standing::Lab;
use crate::record::AnswerOutcome;

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
}

impl Verdict {
    /// Of a lab.
    #[must_use]
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let undecided = Self {
            outcome: AnswerOutcome::Undecided,
            best: lab.leader().or_else(|| lab.best()),
            confirmed: false,
            contradicted: false,
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
        let (usable, _, contradicted) = lab.confirmation(best, lab.decisive_rps(best));
        Self {
            outcome: if contradicted {
                AnswerOutcome::Undecided
            } else {
                AnswerOutcome::Decided
            },
            best: Some(best),
            confirmed: !contradicted && usable >= CONFIRM,
            contradicted,
        }
    }
}
