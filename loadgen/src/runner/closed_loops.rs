//! Closed loops, each followed by an open loop at the same throughput.
//!
//! The open loop follows its closed loop in every repeat, so that both meet the same machine. Its rate is the good
//! replies per second of the closed loop's first repeat, and stays fixed, so that its repeats belong to one point.

use super::ledger::{PlannedStep, Round, Work};
use super::naming::{driven_factors, four_digits};
use super::recorder::goose_figures;
use super::send::{Around, Part, Sent};
use super::target::Target;
use crate::error::RunError;
use crate::plan::{ClosedLoopPlan, Plan};
use crate::store::journal::Points;
use std::sync::Arc;
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{DriverFigures, Factors, SentRequests};
use tierlab_load::by_goose::closed_loop;

/// First position of closed loops, after all loads and mixes.
const PLACE: usize = 1 << 16;
/// First seed of closed loops, distinct from those of loads and mixes.
const OF_LOAD: usize = 1 << 24;
/// Maximum requests of the open loop's step, because their bodies are built before it.
const MAX_REQUESTS: f64 = 2e6;

/// Every closed loop against every target, with its open loop, whose rate is not known yet.
pub(super) fn steps<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let Round { plan, targets, .. } = *round;
    let mut steps = Vec::new();
    for (number, &closed) in plan.closed_loops.iter().enumerate() {
        let attempt = round.attempt(OF_LOAD + number);
        let load = PLACE + 2 * number;
        for (index, target) in targets.iter().enumerate() {
            let beside = driven_factors(plan, target, closed.load(0.0), &plan.model, closed.beside());
            let both = [
                (Work::Closed(closed), (load, closed_factors(plan, target, closed))),
                (Work::Beside(closed), (load + 1, beside)),
            ];
            steps.extend(both.map(|(work, point)| PlannedStep {
                target: index,
                attempt,
                work,
                points: vec![point],
            }));
        }
    }
    steps
}

fn closed_factors(plan: &Plan, target: &Target, closed: ClosedLoopPlan) -> Factors {
    Factors {
        arrivals: "closed loop".into(),
        ..driven_factors(plan, target, closed.load(0.0), &plan.model, closed.driven())
    }
}

/// Returns the rate of the open loop beside a closed one: its existing rate, or else the closed loop's throughput to
/// four digits. `None` without replies, or with too few for one request per window.
///
/// # Errors
/// More requests than a step may have.
pub(super) fn rate_beside(
    plan: &Plan,
    target: &Target,
    closed: ClosedLoopPlan,
    (points, beside): (&Points, &Factors),
) -> Result<Option<f64>, RunError> {
    let window_s = plan.window.as_secs_f64();
    let known = points.all().iter().find(|point| same_but_rate(&point.factors, beside));
    let rate = match known {
        Some(point) => Some(point.factors.offered_rps),
        None => {
            let closed = points.find(&closed_factors(plan, target, closed));
            let first = closed.and_then(|point| point.repeats.iter().min_by_key(|repeat| repeat.index));
            let rps = first.map(|first| four_digits(first.achieved_rps));
            rps.filter(|rps| rps.is_finite() && rps * window_s >= 1.0)
        }
    };
    match rate.filter(|rate| rate * (plan.warmup.as_secs_f64() + window_s) > MAX_REQUESTS) {
        None => Ok(rate),
        Some(rate) => {
            let what = format!(
                "an open loop at the closed loop's {rate} per second sends more than {MAX_REQUESTS} requests a step; shorten it"
            );
            Err(plan.refuse("step_s", what).into())
        }
    }
}

/// Runs a closed loop; `None` if interrupted.
pub(super) async fn send(closed: ClosedLoopPlan, seed: u64, around: &mut Around<'_>) -> Result<Option<Sent>, RunError> {
    let requests = around.requests(closed.load(0.0), &around.plan.model, seed);
    let (step, sent) = requests.closed_loop(closed.users, closed.think, around.watch)?;
    around.begin().await;
    let Some(ran) = closed_loop::run(step, around.interrupt).await? else {
        return Ok(None);
    };
    // More bodies were built than users sent.
    let asked = ran.finished.samples.len() as u64;
    Ok(Some(Sent::of(vec![Part {
        sent: Some(SentRequests {
            distinct: sent.distinct.min(asked),
            ..sent
        }),
        driver: DriverFigures::ClosedLoop {
            closed_loop: ran.figures,
            goose: goose_figures(ran.goose_us, Some(ran.goose_counted)),
        },
        ..Part::of(ran.finished, Arc::new(ran.schedule), seed)
    }])))
}
