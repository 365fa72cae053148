//! Decision whether there is an answer. In: the state of all candidates. Out: the outcome and the best. Knows nothing
//! of runs.

use super::places::usable;
use super::standing::{CONFIRM, Lab};
use crate::record::{AnswerOutcome, MeetsObjective};

/// Result of all steps together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LabVerdict {
    /// State of the answer.
    pub(super) outcome: AnswerOutcome,
    /// The best, or else the likeliest candidate.
    pub(super) best: Option<usize>,
    /// True if fresh steps confirm the best.
    pub(super) confirmed: bool,
    /// True if fresh steps contradict the best.
    pub(super) contradicted: bool,
    /// Number of missing fresh steps, if only those are missing.
    pub(super) missing: u32,
}

impl LabVerdict {
    /// Computes the verdict of a lab.
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let undecided = Self {
            outcome: AnswerOutcome::Undecided,
            // A candidate that misses the objective is no answer, however little is known of the others. Without a
            // usable step only the prior prefers a variant.
            best: lab.leader().filter(|&best| {
                let standing = &lab.standings[best];
                standing.outcome != MeetsObjective::NotMet && usable(&standing.places).next().is_some()
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
        // The least expensive one within the tie margin that fresh steps confirm; without one, the least expensive.
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
