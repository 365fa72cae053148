//! Steps that a variant's p99 at a rate takes. In: its steps. Out: a number of steps. Knows nothing of the rule.

use super::evidence::StepEvidence;
use super::places::SAME;
use crate::record::Percentile;

/// Maximum steps for a p99; a tail that takes more does not fit in a lab, and is not begun.
const MOST: u32 = 64;

/// Returns the number of steps from which the p99 at a rate is printed. 0 if the rate was not measured yet, or if it
/// would take more than 64.
#[must_use]
pub(super) fn steps_for_p99(steps: &[StepEvidence], rps: f64) -> u32 {
    let is_here = |step: &&StepEvidence| step.usable.is_ok() && (step.rps / rps - 1.0).abs() <= SAME;
    let here: Vec<f64> = steps.iter().filter(is_here).map(|step| step.requests).collect();
    let requests = here.iter().sum::<f64>() / here.len() as f64;
    // Without steps the quotient is NaN, which becomes 0.
    let wanted = (Percentile::P99.samples_needed() as f64 / requests).ceil();
    if wanted <= f64::from(MOST) { wanted as u32 } else { 0 }
}
