//! Whether there is an answer. In: how all stand. Out: the outcome and the best. Knows nothing of runs.

use super::standing::{CONFIRM, Lab};
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
            // Without a usable step the prior alone prefers a variant.
            best: lab.leader().filter(|&best| {
                let standing = &lab.standings[best];
                standing.outcome != MeetsObjective::NotMet && standing.places.iter().any(|place| place.usable > 0)
            }),
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
        let good = lab.as_good();
        let fresh = |index: usize| lab.confirmation(index, lab.decisive_rps(index));
        // The least expensive one within the tie that fresh steps confirm; without one, the least expensive.
        let confirmed = good.iter().copied().find(|&index| fresh(index).confirms());
        let Some(best) = confirmed.or_else(|| good.first().copied()) else {
            return undecided;
        };
        let fresh = fresh(best);
        Self {
            outcome: if fresh.confirms() && lab.unmeasured_above(best).is_none() {
                AnswerOutcome::Decided
            } else {
                AnswerOutcome::Undecided
            },
            best: Some(best),
            confirmed: fresh.confirms(),
            contradicted: fresh.contradicted,
            missing: CONFIRM.saturating_sub(fresh.usable),
        }
    }
}
