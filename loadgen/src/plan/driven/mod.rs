//! Closed loops and journeys. In: TOML. Out: both, validated, or the keys that exclude each other.

mod closed_loop;
mod journey;
mod path;

pub use closed_loop::ClosedLoopPlan;
pub(super) use closed_loop::carry;
pub use journey::{Ask, Content, JourneyPlan, StepPlan};

use super::fault::Fault;
use super::raw;
use journey::Frame;
use tierlab_load::wire::Encoding;

/// Closed loops and journeys of a plan.
#[derive(Debug, Default)]
pub(super) struct DrivenPlan {
    pub(super) closed_loops: Vec<ClosedLoopPlan>,
    pub(super) journeys: Vec<JourneyPlan>,
}

/// Validates both, and takes the journeys out of the plan.
pub(super) fn validate(plan: &mut raw::RawPlan) -> Result<DrivenPlan, Fault> {
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

/// Refuses both beside a question, which open loops of single requests answer.
pub(super) fn refuse_beside_question(plan: &raw::RawPlan) -> Result<(), Fault> {
    if plan.load.iter().any(is_closed) {
        return Err(Fault::conflict(
            "load",
            "question",
            "a question is answered by open loops, and `mode = \"concurrency\"` is a closed loop; put it into a plan of its own",
        ));
    }
    if !plan.journey.is_empty() {
        return Err(Fault::conflict(
            "journey",
            "question",
            "a question is about single requests; put the journeys into a plan of their own",
        ));
    }
    Ok(())
}

fn is_closed(load: &raw::RawLoad) -> bool {
    load.mode == raw::RawMode::Concurrency
}

/// Refuses closed loops and journeys beside a search, and journeys with binary tensors.
fn check(plan: &raw::RawPlan) -> Result<(), Fault> {
    let closed = plan.load.iter().position(is_closed);
    let closed = closed.map(|index| format!("load[{index}].mode"));
    let journey = (!plan.journey.is_empty()).then(|| "journey".to_owned());
    if let Some(key) = closed.or(journey).filter(|_| plan.search.is_some()) {
        return Err(Fault::conflict(
            key,
            "[search]",
            "a search is for the highest rate of single requests in an open loop; put one of them into a plan of its own",
        ));
    }
    if !plan.journey.is_empty() && plan.encoding == Some(Encoding::Binary) {
        return Err(Fault::conflict(
            "encoding",
            "journey",
            "values of replies are handed on as JSON; leave `encoding` out, or send binary tensors by `protocol = \"grpc\"`",
        ));
    }
    Ok(())
}
