//! Steps that are not open loops of one load: closed loops, each followed by an open loop at the same throughput; and mixes, all parts
//! of a mix at the same time, each a point of its own.
//!
//! The open loop follows its closed loop in every repeat, so that both meet the same machine. Its rate is the good
//! replies per second of the closed loop's first repeat, and stays fixed, so that its repeats belong to one point.
//!
//! A part of a mix has its own schedule, users and clock, started together with the others': the arrivals are the sum of their
//! processes (for Poisson parts a Poisson process), and each part meets the server under the load of all. The server's
//! counters cover all parts together; the replies give each part's share (`tierlab_analysis::mix_shares`).

use super::ledger::{MixShare, PlannedStep, Round, Work};
use super::naming::{driven_factors, factors, four_digits};
use super::recorder::goose_figures;
use super::send::{PartResults, Results, StepContext};
use super::target::Target;
use crate::error::RunError;
use crate::plan::{ClosedLoopPlan, Plan};
use crate::store::journal::Points;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{DriverFigures, Factors, SentRequests};
use tierlab_load::by_goose::closed_loop;
use tierlab_load::driver;
use tokio::sync::Barrier;

/// First position of closed loops, after all loads and mixes.
const FIRST_POSITION: usize = 1 << 16;
/// First seed of closed loops, distinct from those of loads and mixes.
const FIRST_SEED: usize = 1 << 24;
/// Maximum requests of the open loop's step, because their bodies are built before it.
const MAX_REQUESTS: f64 = 2e6;
/// First seed of mixes, distinct from those of loads.
const FIRST_MIX_SEED: usize = 1 << 20;
/// Time between the last part's readiness and the common zero.
const PART_LEAD: Duration = Duration::from_millis(10);

/// Every closed loop against every target, with its open loop, whose rate is not known yet.
pub(super) fn closed_loops<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let Round { plan, targets, .. } = *round;
    let mut steps = Vec::new();
    for (number, &closed) in plan.closed_loops.iter().enumerate() {
        let attempt = round.attempt(FIRST_SEED + number);
        let load = FIRST_POSITION + 2 * number;
        for (index, target) in targets.iter().enumerate() {
            let paired = driven_factors(plan, target, closed.load(0.0), &plan.model, closed.paired());
            let both = [
                (Work::Closed(closed), (load, closed_factors(plan, target, closed))),
                (Work::Paired(closed), (load + 1, paired)),
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
pub(super) fn paired_rate(
    plan: &Plan,
    target: &Target,
    closed: ClosedLoopPlan,
    (points, paired): (&Points, &Factors),
) -> Result<Option<f64>, RunError> {
    let window_s = plan.window.as_secs_f64();
    let existing = points.all().iter().find(|point| same_but_rate(&point.factors, paired));
    let rate = match existing {
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
            let problem = format!(
                "an open loop at the closed loop's {rate} per second sends more than {MAX_REQUESTS} requests a step; shorten it"
            );
            Err(plan.refuse("step_s", problem).into())
        }
    }
}

/// Runs a closed loop; `None` if interrupted.
pub(super) async fn send_closed(
    closed: ClosedLoopPlan,
    seed: u64,
    context: &mut StepContext<'_>,
) -> Result<Option<Results>, RunError> {
    let requests = context.requests(closed.load(0.0), &context.plan.model, seed);
    let (step, sent) = requests.closed_loop(closed.users, closed.think, context.watch)?;
    context.begin().await;
    let Some(result) = closed_loop::run(step, context.interrupt).await? else {
        return Ok(None);
    };
    // More bodies were built than users sent.
    let count = result.finished.samples.len() as u64;
    Ok(Some(Results::new(vec![PartResults {
        sent: Some(SentRequests {
            distinct: sent.distinct.min(count),
            ..sent
        }),
        driver: DriverFigures::ClosedLoop {
            closed_loop: result.figures,
            goose: goose_figures(result.goose_us, Some(result.goose_counted)),
        },
        ..PartResults::new(result.finished, Arc::new(result.schedule), seed)
    }])))
}

/// Every mix at every rate against every target. The parts share the machine, so a disturbance of one disturbs all.
pub(super) fn mixes<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let plan = round.plan;
    let (mut steps, mut number) = (Vec::new(), 0);
    // After the points of the loads.
    let mut first = plan.loads.len();
    for mix in &plan.mixes {
        for &rate in &mix.rates {
            // Each part has its own seed.
            let attempt = |position: usize| round.attempt(FIRST_MIX_SEED + number * 64 + position);
            for (index, target) in round.targets.iter().enumerate() {
                let (mut shares, mut points) = (Vec::new(), Vec::new());
                for (position, part) in (first..).zip(&mix.parts) {
                    let load = mix.load(part, rate);
                    let model = part.model.as_deref().unwrap_or(&plan.model);
                    let seed = attempt(position).seed;
                    shares.push(MixShare { load, model, seed });
                    let factors = Factors {
                        mix: Some(mix.to_string()),
                        ..factors(plan, target, load, model)
                    };
                    points.push((position, factors));
                }
                steps.push(PlannedStep {
                    target: index,
                    attempt: attempt(first),
                    work: Work::Mix(shares),
                    points,
                });
            }
            number += 1;
        }
        first += mix.parts.len();
    }
    steps
}

/// Sends the requests of all parts, their clocks started together; `None` if interrupted.
pub(super) async fn send_mix(
    shares: &[MixShare<'_>],
    context: &mut StepContext<'_>,
) -> Result<Option<Results>, RunError> {
    context.begin().await;
    let barrier = Barrier::new(shares.len());
    let shares = shares.iter();
    let sending = shares.map(|share| Box::pin(send_share(share, &barrier, context)));
    let sent = futures::future::try_join_all(sending).await?;
    Ok(sent.into_iter().collect::<Option<Vec<_>>>().map(Results::new))
}

async fn send_share(
    share: &MixShare<'_>,
    barrier: &Barrier,
    context: &StepContext<'_>,
) -> Result<Option<PartResults>, RunError> {
    let requests = context.requests(share.load, share.model, share.seed);
    let schedule = requests.schedule();
    let (step, sent) = requests.step(&schedule, context.watch)?;
    let facts = requests.described(&step);
    let start = async {
        barrier.wait().await;
        Ok::<_, RunError>(Instant::now() + PART_LEAD)
    };
    let finished = driver::run_from(step, start, context.interrupt).await?;
    Ok(finished.map(|finished| PartResults {
        sent: Some(sent),
        facts,
        ..PartResults::new(finished, schedule, share.seed)
    }))
}
