//! Runs mixes: all parts of a mix at the same time, each a point of its own.
//!
//! In: a runner. Out: more steps in its journal. A part has its own schedule, users and clock, started together with
//! the others': the arrivals are the sum of their processes (for Poisson parts a Poisson process), and each part meets
//! the server under the load of all. The server's counters cover all parts together; the replies give each part's share
//! (`tierlab_analysis::mix_shares`).

use super::ledger::{Attempt, Ledger};
use super::naming::{factors, name};
use super::recorder;
use super::send::{self, Around, Measured, Requests};
use super::step::Runner;
use super::target::Target;
use crate::error::RunError;
use crate::plan::{Mix, Plan};
use crate::server::delta;
use crate::store::journal::Position;
use tierlab_analysis::mix_shares;
use tierlab_analysis::record::{DriverFigures, Factors, Repeat};
use tierlab_load::live::Watch;
use tierlab_load::load::Load;
use tokio::sync::Barrier;

/// One part at one rate.
struct Share<'a> {
    /// Position among the plan's points, after those of the loads.
    place: usize,
    load: Load,
    model: &'a str,
    factors: Factors,
}

/// Returns the parts of every mix at every rate, for one target.
fn shares<'a>(plan: &'a Plan, target: &Target) -> Vec<Vec<Share<'a>>> {
    let mut first = plan.loads.len();
    let mut all = Vec::new();
    for mix in &plan.mixes {
        for &rate in &mix.rates {
            all.push(parts(plan, target, mix, rate, first));
        }
        first += mix.parts.len();
    }
    all
}

fn parts<'a>(plan: &'a Plan, target: &Target, mix: &'a Mix, rate: f64, first: usize) -> Vec<Share<'a>> {
    mix.parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let load = mix.load(part, rate);
            let model = part.model.as_deref().unwrap_or(&plan.model);
            Share {
                place: first + index,
                load,
                model,
                factors: Factors {
                    mix: Some(mix.to_string()),
                    ..factors(plan, target, load, model)
                },
            }
        })
        .collect()
}

/// Returns the distinct models of a mix.
fn models<'a>(parts: &[Share<'a>]) -> Vec<&'a str> {
    let mut models: Vec<&str> = parts.iter().map(|share| share.model).collect();
    models.sort_unstable();
    models.dedup();
    models
}

/// Returns the points of a plan's mixes on one target.
pub(super) fn expected(plan: &Plan, target: &Target) -> Vec<Factors> {
    let shares = shares(plan, target).into_iter().flatten();
    shares.map(|share| share.factors).collect()
}

impl Runner<'_> {
    /// Runs every mix at every rate against every target; in a later attempt only those with a disturbed step.
    pub(super) async fn mixes(&mut self, repeat: u32, attempt: u32, ledger: &mut Ledger) -> Result<(), RunError> {
        if let Some(flag) = self.senders.several()
            && !self.plan.mixes.is_empty()
        {
            let what = format!("a mix is sent by one process; leave out {flag}, or the mix");
            return Err(self.plan.refuse("mix", what).into());
        }
        let steps: usize = self.plan.mixes.iter().map(|mix| mix.rates.len()).sum();
        for step in 0..steps {
            for target in 0..self.targets.len() {
                self.mixed_step(ledger, Position { target, load: step }, (repeat, attempt))
                    .await?;
            }
        }
        Ok(())
    }

    /// Runs one mix at one rate, unless all its parts exist already. Its parts share the machine, so a disturbance of
    /// one disturbs all.
    async fn mixed_step(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        (index, number): (u32, u32),
    ) -> Result<(), RunError> {
        let plan = self.plan;
        let target = self.targets[position.target].clone();
        let step = position.load;
        let parts = shares(plan, &target).swap_remove(step);
        // Each part has its own seed.
        let attempt = |share: &Share<'_>| Attempt::of(plan, index, number, (1 << 20) + step * 64 + share.place);
        if !ledger.is_due(parts.iter().map(|share| &share.factors), attempt(&parts[0])) {
            return Ok(());
        }
        self.until_quiet(ledger, position.target).await;
        (self.alive)()?;
        (self.prepare)(&target)?;
        let watch = ledger
            .progress
            .begin(&format!("{} in a mix of {}", name(&parts[0].factors), parts.len()));
        let models = models(&parts);
        let mut around = Around::watch(plan, &target.control, &models);
        around.begin().await;
        let requests = parts.iter().map(|share| Requests {
            plan,
            target: &target,
            load: share.load,
            model: share.model,
            seed: attempt(share).seed,
        });
        let measured = self.send_parts(requests.collect(), &watch).await?;
        let samples = measured.iter().flat_map(|part| &part.finished.samples);
        let requests = delta::Requests::of(samples);
        // A mix has at least two parts, which begin together.
        let beside = around.end(requests, measured[0].finished.window_began).await;
        self.still_there(ledger, position, index, &parts[0].factors, &beside)
            .await?;
        let repeats = parts.iter().zip(&measured).map(|(share, part)| {
            let label = attempt(share).label(&share.factors);
            Repeat {
                attempt: number,
                sent: Some(part.sent.clone()),
                ..recorder::record(label, &part.finished, &part.schedule, beside.server.clone())
            }
        });
        let repeats: Vec<Repeat> = repeats.collect();
        let sent: Vec<(u32, &Repeat)> = parts.iter().map(|share| share.load.batch_size).zip(&repeats).collect();
        let shares = mix_shares(&sent);
        let mut lines = Vec::new();
        for ((share, repeat), mix_share) in parts.iter().zip(repeats).zip(shares) {
            let repeat = Repeat {
                driver: DriverFigures::MixPart { mix_share },
                ..repeat
            };
            let position = Position {
                load: share.place,
                ..position
            };
            lines.push(self.keep(ledger, position, share.factors.clone(), repeat, beside.watched.as_ref())?);
        }
        ledger.progress.finish(&lines.join("\n    "));
        Ok(())
    }

    /// Sends the requests of all parts, their clocks started together.
    async fn send_parts(&self, parts: Vec<Requests<'_>>, watch: &Watch) -> Result<Vec<Measured>, RunError> {
        let together = Barrier::new(parts.len());
        let measuring = parts
            .iter()
            .map(|requests| Box::pin(send::measure_part(requests, &together, watch, &self.interrupt)));
        let measured = futures::future::try_join_all(measuring).await?;
        let all = measured.into_iter().collect::<Option<Vec<_>>>();
        all.ok_or_else(|| RunError::Interrupted(self.folder.clone()))
    }
}
