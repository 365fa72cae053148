//! What a plan measures beside single requests at given rates: closed loops and journeys. In: TOML. Out: both, validated; what does
//! not go together with them is refused by name.

mod closed_loop;
mod journey;
mod path;

pub use closed_loop::ClosedLoopPlan;
pub(super) use closed_loop::carry;
pub use journey::{Ask, Content, JourneyPlan, StepPlan};

use super::raw;
use journey::Frame;
use tierlab_load::wire::Encoding;

/// What a plan has of both.
#[derive(Debug, Default)]
pub(super) struct DrivenPlan {
    pub(super) closed_loops: Vec<ClosedLoopPlan>,
    pub(super) journeys: Vec<JourneyPlan>,
}

/// Validates both, and takes the journeys out of the plan.
pub(super) fn validate(plan: &mut raw::RawPlan) -> Result<DrivenPlan, String> {
    check(plan)?;
    let frame = Frame {
        warmup_s: plan.warmup_s,
        step_s: plan.step_s,
        protocol: plan.protocol,
    };
    Ok(DrivenPlan {
        closed_loops: closed_loop::validate(&plan.load)?,
        journeys: journey::validate(std::mem::take(&mut plan.journey), frame)?,
    })
}

/// Nothing beside a question, which is answered by open loops of single requests.
pub(super) fn refuse_beside_question(plan: &raw::RawPlan) -> Result<(), String> {
    if plan.load.iter().any(is_closed) {
        return Err(
            "`load` with `mode = \"concurrency\"` and `question` do not go together: a closed loop offers no rate, and a question is \
             answered by open loops; put it into a plan of its own"
                .into(),
        );
    }
    if !plan.journey.is_empty() {
        return Err(
            "`journey` and `question` do not go together: a question is about single requests; put it into a plan of its own".into(),
        );
    }
    Ok(())
}

fn is_closed(load: &raw::RawLoad) -> bool {
    load.mode == raw::RawMode::Concurrency
}

/// What goose's own client carries, and what is answered by open loops of single requests alone.
fn check(plan: &raw::RawPlan) -> Result<(), String> {
    let closed = plan.load.iter().position(is_closed);
    let closed = closed.map(|index| {
        (
            format!("load[{index}].mode"),
            "`mode = \"concurrency\"`, a closed loop,",
        )
    });
    let journey = (!plan.journey.is_empty()).then(|| ("journey".to_owned(), "a `[[journey]]`"));
    for (key, what) in closed.into_iter().chain(journey) {
        // Of a question this is taken out by then.
        if plan.search.is_some() {
            return Err(format!(
                "`{key}`: {what} and `[search]` do not go together: a search is for the highest rate of single requests in an open \
                 loop; put one of them into a plan of its own"
            ));
        }
    }
    if !plan.journey.is_empty() && plan.encoding == Some(Encoding::Binary) {
        return Err(
            "`encoding` = \"binary\" does not belong to a plan with `[[journey]]`, whose values are handed on as JSON; leave it out, or \
             send tensors as binary by `protocol = \"grpc\"`"
                .into(),
        );
    }
    Ok(())
}
