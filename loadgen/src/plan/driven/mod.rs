//! Closed loops and journeys. In: TOML. Out: both, validated, or the keys that exclude each other.

mod closed_loop;
mod journey;
mod path;

pub use closed_loop::ClosedLoopPlan;
pub(super) use closed_loop::{add as add_closed_loops, carry};
pub(super) use journey::validate as journeys;
pub use journey::{Ask, Content, JourneyPlan, StepPlan};

use super::fault::{Fault, conflict};
use super::raw;
use tierlab_load::wire::Encoding;

/// True for a closed loop.
pub(super) fn is_closed(load: &raw::RawLoad) -> bool {
    load.mode == raw::RawMode::Concurrency
}

/// Refuses closed loops and journeys beside a search, and journeys with binary tensors.
pub(super) fn check(plan: &raw::RawPlan) -> Result<(), Fault> {
    let closed = plan.load.iter().position(is_closed);
    let closed = closed.map(|index| format!("load[{index}].mode"));
    let journey = (!plan.journey.is_empty()).then(|| "journey".to_owned());
    if let Some(key) = closed.or(journey).filter(|_| plan.search.is_some()) {
        return conflict(
            key,
            "[search]",
            "a search is for the highest rate of single requests in an open loop; put one of them into a plan of its own",
        );
    }
    if !plan.journey.is_empty() && plan.encoding == Some(Encoding::Binary) {
        return conflict(
            "encoding",
            "journey",
            "values of replies are handed on as JSON; leave `encoding` out, or send binary tensors by `protocol = \"grpc\"`",
        );
    }
    Ok(())
}
