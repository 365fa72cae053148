//! Questions that cannot be answered here, refused before the first step. In: the question, and what is known of the instrument.
//! Out: why not, and what would do.

use crate::error::RunError;
use crate::plan::Plan;
use crate::runner::{Instrument, asked};
use std::time::Duration;
use tierlab_analysis::latency::objective::measured_us;
use tierlab_analysis::record::{Objective, Point, Question};
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_instrument::units::wait;

/// Steps of a variant that even an easy answer takes: a scout, a bracket of two, and one to be sure.
const STEPS_PER_VARIANT: u32 = 4;
/// Steps that confirm the winner.
const STEPS_TO_CONFIRM: u32 = 3;

/// Refuses a question that cannot be answered in its budget or by this instrument.
///
/// # Errors
/// An objective below the noise floor, a budget below what the fewest steps take.
pub(super) fn check(
    plan: &Plan,
    question: &Question,
    variants: usize,
    instrument: &Instrument,
) -> Result<(), RunError> {
    let step = plan.step_limit();
    let fewest = step * (STEPS_PER_VARIANT * variants as u32 + STEPS_TO_CONFIRM);
    let loads = step * (variants * plan.loads.len()) as u32 * plan.repeats;
    if Duration::from_secs_f64(question.budget_s) < fewest + loads {
        let of_loads = if loads.is_zero() {
            String::new()
        } else {
            format!(", {} of it for the plan's own loads", wait(loads))
        };
        let refused = plan.refuse(
            "question.budget",
            format!(
                "{} is too short for {variants} variants at {:.1} s a step: it takes {} at least{of_loads}; \
                 raise it, or leave variants out",
                wait(Duration::from_secs_f64(question.budget_s)),
                step.as_secs_f64(),
                wait(fewest + loads)
            ),
        );
        return Err(refused.into());
    }
    let Some(floor) = &instrument.noise_floor else {
        return Ok(());
    };
    match question.objectives.iter().find_map(|objective| below(objective, floor)) {
        None => Ok(()),
        Some((objective, floor_us)) => Err(plan.refuse(
            "question.slo",
            format!(
                "{objective} lies below the noise floor: at {:.0}/s a server that does nothing has a {} of {:.3} \
                 ms on this machine, so no variant could be seen to meet it; ask for more, or measure on a quieter machine",
                asked(question).rate,
                objective.figure(),
                floor_us / 1e3
            ),
        )
        .into()),
    }
}

/// An objective that even the null endpoint does not meet, and what it has.
fn below<'a>(objective: &'a Objective, floor: &Point) -> Option<(&'a Objective, f64)> {
    let repeats = floor.repeats.iter();
    let table = BlockTable::new(repeats.map(|repeat| repeat.histograms.latency.as_slice()));
    let us = measured_us(*objective, &table)?;
    (Some(us) >= objective.limit_us()).then_some((objective, us))
}
