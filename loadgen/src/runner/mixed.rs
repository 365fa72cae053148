//! Mixes carried out: all parts of a mix at the same time, each a point of its own.
//!
//! In: a runner. Out: more steps in its journal. A part has its own schedule, users and clock, started together with the
//! others': what all of them send is the sum of their processes (for Poisson parts a Poisson process), and what each
//! meets is the server under all of them. The server's counters are of all parts together; what each has of them, its
//! replies say (`tierlab_analysis::mix_shares`).

use super::disturbed::{beside, is_wanted_again, seed_of};
use super::ledger::{Attempt, Ledger};
use super::naming::{factors, line, name};
use super::recorder::{self, Label};
use super::send::{self, Around, Requests};
use super::step::Runner;
use super::target::Target;
use crate::error::RunError;
use crate::plan::{Mix, Plan};
use crate::server::delta;
use crate::store::histograms::hdr_file_of;
use crate::store::journal::{FinishedStep, Position};
use tierlab_analysis::mix_shares;
use tierlab_analysis::record::{Factors, Purpose, Repeat};
use tierlab_instrument::machine::watch::MachineWatch;
use tierlab_load::load::Load;
use tokio::sync::Barrier;

/// One part at one rate.
struct Share<'a> {
    /// Its place among the plan's points, behind those of the loads.
    place: usize,
    load: Load,
    model: &'a str,
    factors: Factors,
}

/// The parts of every mix at every rate, for one target.
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

/// The models of a mix, each once.
fn models<'a>(parts: &[Share<'a>]) -> Vec<&'a str> {
    let mut models: Vec<&str> = parts.iter().map(|share| share.model).collect();
    models.sort_unstable();
    models.dedup();
    models
}

/// Points of a plan's mixes on one target.
pub(super) fn expected(plan: &Plan, target: &Target) -> Vec<Factors> {
    let shares = shares(plan, target).into_iter().flatten();
    shares.map(|share| share.factors).collect()
}

impl Runner<'_> {
    /// Every mix at every rate against every target, once; with a later attempt those whose step was disturbed.
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
                // The seed is each part's own.
                let attempt = Attempt {
                    index: repeat,
                    attempt,
                    seed: 0,
                    purpose: Purpose::Explore,
                };
                self.mixed_step(ledger, Position { target, load: step }, attempt)
                    .await?;
            }
        }
        Ok(())
    }

    /// One mix at one rate, unless all its parts are there already. Its parts share the machine, so that what disturbs one
    /// disturbs all.
    async fn mixed_step(&mut self, ledger: &mut Ledger, position: Position, attempt: Attempt) -> Result<(), RunError> {
        let plan = self.plan;
        let Attempt {
            index, attempt: number, ..
        } = attempt;
        let target = self.targets[position.target].clone();
        let step = position.load;
        let parts = shares(plan, &target).swap_remove(step);
        if number > 0 {
            if !parts
                .iter()
                .any(|share| is_wanted_again(ledger, &share.factors, attempt))
            {
                return Ok(());
            }
            ledger.progress.more(1);
        } else if parts
            .iter()
            .all(|share| ledger.points.step(&share.factors, index).is_some())
        {
            ledger.progress.skip();
            return Ok(());
        }
        self.until_quiet(ledger, position.target).await;
        (self.alive)()?;
        (self.prepare)(&target)?;
        let watch = ledger
            .progress
            .begin(&format!("{} in a mix of {}", name(&parts[0].factors), parts.len()));
        let together = Barrier::new(parts.len());
        let seed = |share: &Share<'_>| {
            let of_load = (1 << 20) + step * 64 + share.place;
            seed_of(plan.seed, index, number, of_load)
        };
        let machine = MachineWatch::begin(target.control.addresses(), plan.step_limit());
        let measuring = parts.iter().map(|share| {
            let requests = Requests {
                plan,
                target: &target,
                load: share.load,
                model: share.model,
                seed: seed(share),
            };
            let (together, watch, interrupt) = (&together, &watch, &self.interrupt);
            Box::pin(async move { send::measure_part(&requests, together, watch, interrupt).await })
        });
        let models = models(&parts);
        let around = Around::begin(&target.control, &models).await;
        let measured = futures::future::try_join_all(measuring).await?;
        let Some(measured) = measured.into_iter().collect::<Option<Vec<_>>>() else {
            return Err(RunError::Interrupted(self.folder.clone()));
        };
        let began = measured.first().map(|part| part.finished.window_began);
        let watched = machine
            .zip(began)
            .and_then(|(machine, began)| machine.end(began, plan.window));
        let samples = || measured.iter().flat_map(|part| &part.finished.samples);
        let requests = delta::Requests::of(samples());
        let (server, is_unread) = around.end(&target.control, &models, requests).await;
        if is_unread || requests.answered == 0 {
            self.still_there(position, index, &parts[0].factors).await?;
            ledger.unanswered += usize::from(is_unread);
        }
        let repeats: Vec<Repeat> = parts
            .iter()
            .zip(&measured)
            .map(|(share, part)| {
                let label = Label {
                    index,
                    seed: seed(share),
                    hdr_file: hdr_file_of(&share.factors, index, number),
                };
                Repeat {
                    sent: Some(part.sent.clone()),
                    ..recorder::record(label, &part.finished, &part.schedule, server.clone())
                }
            })
            .collect();
        let sent: Vec<(u32, &Repeat)> = parts.iter().map(|share| share.load.batch_size).zip(&repeats).collect();
        let shares = mix_shares(&sent);
        let mut lines = Vec::new();
        for ((share, repeat), of_whole) in parts.iter().zip(repeats).zip(shares) {
            let repeat = Repeat {
                attempt: number,
                mix_share: Some(of_whole),
                ..repeat
            };
            let earlier = ledger.points.step(&share.factors, index);
            let repeat = beside(repeat, watched.as_ref(), earlier, &plan.limits);
            lines.push(line(&share.factors, &repeat));
            let step = FinishedStep {
                position: Position {
                    target: position.target,
                    load: share.place,
                },
                factors: share.factors.clone(),
                repeat,
            };
            ledger.journal.keep(&step)?;
            ledger.add(step);
        }
        ledger.progress.finish(&lines.join("\n    "));
        Ok(())
    }
}
