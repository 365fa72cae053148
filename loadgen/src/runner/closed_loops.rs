//! Runs closed loops, each followed by an open loop at the same throughput.
//!
//! In: a runner. Out: more steps in its journal. The open loop follows its closed loop in every repeat, so that both
//! meet the same machine. Its rate is the good replies per second of the closed loop's first repeat, and stays fixed,
//! so that its repeats belong to one point.

use super::ledger::{Attempt, Ledger};
use super::naming::{driven_factors, four_digits, name};
use super::recorder::{self, goose_figures};
use super::send::{Around, Requests};
use super::step::Runner;
use super::target::Target;
use crate::error::RunError;
use crate::plan::{ClosedLoopPlan, Plan};
use crate::server::delta;
use crate::store::journal::{Points, Position};
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{DriverFigures, Factors, Repeat, SentRequests};
use tierlab_load::by_goose::closed_loop;

/// First position of closed loops, after all loads and mixes.
const PLACE: usize = 1 << 16;
/// First seed of closed loops, distinct from those of loads and mixes.
const OF_LOAD: usize = 1 << 24;
/// Maximum requests of the open loop's step, because their bodies are built before it.
const MAX_REQUESTS: f64 = 2e6;

/// Returns the points of a plan's closed loops on one target, and of the open loops beside them without a rate.
pub(super) fn expected(plan: &Plan, target: &Target) -> Vec<Factors> {
    let both = |closed: &ClosedLoopPlan| {
        [
            closed_factors(plan, target, *closed),
            beside_factors(plan, target, *closed, 0.0),
        ]
    };
    plan.closed_loops.iter().flat_map(both).collect()
}

fn closed_factors(plan: &Plan, target: &Target, closed: ClosedLoopPlan) -> Factors {
    Factors {
        arrivals: "closed loop".into(),
        ..driven_factors(plan, target, closed.load(0.0), &plan.model, closed.driven())
    }
}

fn beside_factors(plan: &Plan, target: &Target, closed: ClosedLoopPlan, rate: f64) -> Factors {
    driven_factors(plan, target, closed.load(rate), &plan.model, closed.beside())
}

/// Returns the rate of the open loop beside a closed one: its existing rate, or else the closed loop's throughput to
/// four digits. `None` without replies, or with too few for one request per window.
fn rate_beside(points: &Points, closed: &Factors, beside: &Factors, window_s: f64) -> Option<f64> {
    let known = points.all().iter().find(|point| same_but_rate(&point.factors, beside));
    if let Some(point) = known {
        return Some(point.factors.offered_rps);
    }
    let first = points.find(closed)?.repeats.iter().min_by_key(|repeat| repeat.index)?;
    let rps = four_digits(first.achieved_rps);
    (rps.is_finite() && rps * window_s >= 1.0).then_some(rps)
}

impl Runner<'_> {
    /// Runs every closed loop against every target, with its open loop; in a later attempt only those with a disturbed
    /// step.
    pub(super) async fn closed_loops(
        &mut self,
        repeat: u32,
        attempt: u32,
        ledger: &mut Ledger,
    ) -> Result<(), RunError> {
        let plan = self.plan;
        if !plan.closed_loops.is_empty() {
            self.refuse_several(
                "load",
                "a closed loop is run by one process, whose users are all there are",
            )?;
        }
        for (number, &closed) in plan.closed_loops.iter().enumerate() {
            for target in 0..self.targets.len() {
                let attempt = Attempt::of(plan, repeat, attempt, OF_LOAD + number);
                let load = PLACE + 2 * number;
                self.closed_step(ledger, Position { target, load }, closed, attempt)
                    .await?;
                self.step_beside(ledger, Position { target, load: load + 1 }, closed, attempt)
                    .await?;
            }
        }
        Ok(())
    }

    /// Refuses several processes for a load that only one process can send.
    pub(super) fn refuse_several(&self, key: &str, why: &str) -> Result<(), RunError> {
        let Some(what) = self.senders.several() else {
            return Ok(());
        };
        let refused = format!("{why}; leave out {what}, or put it into a plan of its own");
        Err(self.plan.refuse(key, refused).into())
    }

    async fn closed_step(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        closed: ClosedLoopPlan,
        attempt: Attempt,
    ) -> Result<(), RunError> {
        let plan = self.plan;
        let target = self.targets[position.target].clone();
        let factors = closed_factors(plan, &target, closed);
        if !ledger.is_due([&factors], attempt) {
            return Ok(());
        }
        self.until_quiet(ledger, position.target).await;
        (self.alive)()?;
        (self.prepare)(&target)?;
        let watch = ledger.progress.begin(&name(&factors));
        let requests = Requests {
            plan,
            target: &target,
            load: closed.load(0.0),
            model: &plan.model,
            seed: attempt.seed,
        };
        let (step, sent) = requests.closed_loop(closed.users, closed.think, &watch)?;
        let models = [plan.model.as_str()];
        let mut around = Around::watch(plan, &target.control, &models);
        around.begin().await;
        let Some(ran) = Box::pin(closed_loop::run(step, &self.interrupt)).await? else {
            return Err(RunError::Interrupted(self.folder.clone()));
        };
        let requests = delta::Requests::of(ran.finished.samples.iter());
        let beside = around.end(requests, ran.finished.window_began).await;
        self.still_there(ledger, position, attempt.index, &factors, &beside)
            .await?;
        // More bodies were built than users sent.
        let asked = ran.finished.samples.len() as u64;
        let sent = SentRequests {
            distinct: sent.distinct.min(asked),
            ..sent
        };
        let label = attempt.label(&factors);
        let repeat = Repeat {
            attempt: attempt.attempt,
            sent: Some(sent),
            driver: DriverFigures::ClosedLoop {
                closed_loop: ran.figures,
                goose: goose_figures(ran.goose_us, Some(ran.goose_counted)),
            },
            ..recorder::record(label, &ran.finished, &ran.schedule, beside.server)
        };
        let line = self.keep(ledger, position, factors, repeat, beside.watched.as_ref())?;
        ledger.progress.finish(&line);
        Ok(())
    }

    /// Runs the open loop at the closed loop's throughput.
    async fn step_beside(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        closed: ClosedLoopPlan,
        attempt: Attempt,
    ) -> Result<(), RunError> {
        let plan = self.plan;
        let target = &self.targets[position.target];
        let of_closed = closed_factors(plan, target, closed);
        let of_beside = beside_factors(plan, target, closed, 0.0);
        let window_s = plan.window.as_secs_f64();
        let Some(rate) = rate_beside(&ledger.points, &of_closed, &of_beside, window_s) else {
            // The table shows that there is none.
            if attempt.attempt == 0 {
                ledger.progress.skip();
            }
            return Ok(());
        };
        if rate * (plan.warmup.as_secs_f64() + window_s) > MAX_REQUESTS {
            let what = format!(
                "an open loop at the closed loop's {rate} per second is more than {MAX_REQUESTS} requests a step; shorten it"
            );
            return Err(plan.refuse("step_s", what).into());
        }
        let factors = beside_factors(plan, target, closed, rate);
        if !ledger.is_due([&factors], attempt) {
            return Ok(());
        }
        self.step_of(ledger, position, closed.load(rate), attempt, Some(closed.beside()))
            .await
    }
}
