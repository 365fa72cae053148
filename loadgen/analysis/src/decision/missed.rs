//! Rate at which a variant's own steps miss an objective. In: a question and steps. Out: a rate. Knows nothing of
//! curves.

use super::evidence::StepEvidence;
use super::places::SAME;
use crate::record::Question;

/// Requests beyond a percentile from which it is printed and counts, less a margin for rounding.
const BEYOND: f64 = 10.0 - 1e-5;

/// Returns the lowest rate at which all steps together, for any purpose, have more slow or failed requests than an
/// objective allows, and enough for its percentile.
#[must_use]
pub(super) fn missed_rps(question: &Question, steps: &[StepEvidence]) -> Option<f64> {
    let counts = |step: &&StepEvidence| step.requests > 0.0 && step.usable.is_ok();
    let is_missed = |rps: &f64| {
        let here = || {
            steps
                .iter()
                .filter(counts)
                .filter(|step| (step.rps / rps - 1.0).abs() <= SAME)
        };
        let requests: f64 = here().map(|step| step.requests).sum();
        question.objectives.iter().enumerate().any(|(index, objective)| {
            let allowed = objective.slow_share() * requests;
            let slow: f64 = here().filter_map(|step| step.slow.get(index)).sum();
            allowed >= BEYOND && slow > allowed
        })
    };
    let rates = steps.iter().filter(counts).map(|step| step.rps);
    rates.filter(is_missed).reduce(f64::min)
}
