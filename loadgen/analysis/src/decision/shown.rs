//! How many steps of a variant its p99 at a rate takes. In: its steps. Out: a number of steps. Knows nothing of the rule.

use super::evidence::StepEvidence;
use super::places::SAME;
use crate::record::Percentile;

/// A tail that takes more steps is not known in the time of a lab, and not begun with.
const MOST: u32 = 64;

/// Steps at a rate from which on its p99 is printed. 0 where none was measured at the rate yet, or where it would take more
/// than 64.
#[must_use]
pub(super) fn steps_for_p99(steps: &[StepEvidence], rps: f64) -> u32 {
    let is_here = |step: &&StepEvidence| step.usable.is_ok() && (step.rps / rps - 1.0).abs() <= SAME;
    let here: Vec<f64> = steps.iter().filter(is_here).map(|step| step.requests).collect();
    let requests = here.iter().sum::<f64>() / here.len() as f64;
    // Without steps the quotient is no number, and becomes 0.
    let wanted = (Percentile::P99.samples_needed() as f64 / requests).ceil();
    if wanted <= f64::from(MOST) { wanted as u32 } else { 0 }
}
