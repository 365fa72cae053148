//! How many steps of a variant its p99 at a rate takes. In: its steps. Out: a number of steps. Knows nothing of the rule.

use super::evidence::StepEvidence;
use super::places::SAME;
use crate::statistics::percentile::{LEAST_TIME, samples_wanted};

/// A tail that takes more steps is not known in the time of a lab, and not begun with.
const MOST: u32 = 64;
/// More than is asked for, since the steps to come may show a longer dependence.
const MARGIN: f64 = 1.15;

/// From how many steps at a rate its p99 is printed ([`crate::latency::availability`]): by what requests at the next lower and the next
/// higher measured rate showed of their dependence. 0 where none was measured at the rate yet, or where it would take more than 64.
#[must_use]
pub(super) fn steps_for_p99(steps: &[StepEvidence], rps: f64) -> u32 {
    let usable: Vec<&StepEvidence> = steps.iter().filter(|step| step.usable.is_ok()).collect();
    let is_here = |step: &StepEvidence| (step.rps / rps - 1.0).abs() <= SAME;
    let here: Vec<&StepEvidence> = usable.iter().copied().filter(|step| is_here(step)).collect();
    if here.is_empty() {
        return 0;
    }
    let others = || usable.iter().filter(|step| !is_here(step)).map(|step| step.rps);
    let below = others().filter(|other| *other < rps).reduce(f64::max);
    let above = others().filter(|other| *other > rps).reduce(f64::min);
    let shown = |other: f64| {
        let times = usable
            .iter()
            .filter(|step| step.rps == other)
            .map(|step| step.dependence);
        let times: Vec<f64> = times.collect();
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        // What lasts some milliseconds lasts as many fewer requests at a lower rate.
        1.0 + (mean - 1.0) * rps / other
    };
    let time = [below, above]
        .into_iter()
        .flatten()
        .map(shown)
        .fold(LEAST_TIME, f64::max);
    let requests = here.iter().map(|step| step.requests).sum::<f64>() / here.len() as f64;
    let wanted = |repeats: u32| samples_wanted(0.99, repeats as usize, time) as f64 * MARGIN;
    (1..=MOST)
        .find(|&repeats| f64::from(repeats) * requests >= wanted(repeats))
        .unwrap_or(0)
}
