//! Measures a lab's question block by block, until it is answered or its budget is used up.
//!
//! In: a runner whose points so far are evidence. Out: more steps, like any other in the journal, so that a stopped run
//! resumes there. [`tierlab_analysis::decision`] chooses the next block from the evidence alone. The variants of a block
//! have the same seeds, so that they are compared on the same arrivals and keys; each repeat has another.

use super::ledger::{Attempt, Ledger};
use super::naming::factors;
use super::step::Runner;
use crate::error::RunError;
use crate::plan::Until;
use std::time::{Duration, Instant};
use tierlab_analysis::decision::{self, Candidate, Next, Phase, Probe, StopReason, Time};
use tierlab_analysis::record::{Answer, AnswerOutcome, Question, Run};
use tierlab_instrument::units::duration;
use tierlab_load::schedule::{Load, split_mix, step_seed};

/// Number of blocks after which reports are rewritten.
const VIEWS_EVERY: u32 = 8;
/// First seed of blocks, distinct from those of the plan's loads and searches.
const BLOCK_SEEDS: usize = 1 << 24;
/// Distance between the seeds of a block's repeats, more than there are blocks.
const REPEAT_SEEDS: u32 = 1 << 24;

impl Runner<'_> {
    /// Measures until the plan's question is answered.
    pub(super) async fn decide(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        let Some(question) = self.plan.question.clone() else {
            return Ok(());
        };
        let plan = self.plan;
        let clock = BudgetClock {
            start: Instant::now(),
            step_s: (plan.warmup + plan.window).as_secs_f64(),
            earlier_steps: steps(ledger),
        };
        // The plan's own loads take a part of the budget.
        let load_steps = self.targets.len() * plan.loads.len() * plan.repeats as usize;
        let loads_s = load_steps as f64 * plan.step_limit().as_secs_f64();
        let question = Question {
            budget_s: (question.budget_s - loads_s).max(0.0),
            ..question
        };
        let deadline = clock.deadline(question.budget_s);
        ledger.patience.ends = Some(deadline);
        ledger.progress.begin_limit(deadline);
        run.points = ledger.points.all().to_vec();
        let mut candidates = decision::candidates(run);
        let mut phase = None;
        for block in clock.earlier_steps.. {
            let time = clock.time(ledger);
            let spent_s = loads_s + time.spent_s;
            run.question_spent_s = Some(spent_s);
            let (next_phase, probes) = match decision::next(&question, &candidates, &time) {
                Next::Stop(reason) => {
                    ledger.progress.print(&format!("  {}", describe_stop(&reason, spent_s)));
                    break;
                }
                Next::Block { phase, probes } => (phase, probes),
            };
            if next_phase == Phase::Charts && self.plan.until == Until::Answered {
                self.write(run, &ledger.points)?;
                let is_decided = |answer: &Answer| answer.outcome == AnswerOutcome::Decided;
                if run.answer.as_ref().is_some_and(is_decided) {
                    let line = format!("  {}", describe_stop(&StopReason::Decided, spent_s));
                    ledger.progress.print(&line);
                    break;
                }
            }
            if phase.replace(next_phase) != Some(next_phase) {
                ledger.progress.print(&format!("  {next_phase}"));
            }
            ledger.progress.add_steps(probes.len() as u32);
            self.block(&question, &probes, block, ledger, &mut candidates).await?;
            if block % VIEWS_EVERY == 0 {
                self.write(run, &ledger.points)?;
                let leader = run.answer.as_ref().and_then(|answer| answer.best.as_deref());
                ledger.progress.set_leader(leader);
            }
        }
        ledger.patience.ends = None;
        ledger.progress.end_limit();
        self.write(run, &ledger.points)
    }

    async fn block(
        &mut self,
        question: &Question,
        probes: &[Probe],
        block: u32,
        ledger: &mut Ledger,
        candidates: &mut [Candidate],
    ) -> Result<(), RunError> {
        for (place, probe) in probes.iter().enumerate() {
            let is_same = |one: &&Probe| one.candidate == probe.candidate && one.rps.to_bits() == probe.rps.to_bits();
            let repeat = probes[..place].iter().filter(is_same).count() as u32;
            let load = question_load(question).at(probe.rps);
            let factors = factors(self.plan, &self.targets[probe.candidate], load, &self.plan.model);
            let measured = ledger.points.find(&factors).map_or(&[][..], |point| &point.repeats);
            let index = measured.iter().map(|repeat| repeat.index + 1).max().unwrap_or(0);
            let rate_seed = (split_mix(probe.rps.to_bits()) >> 44) as usize;
            let position = (probe.candidate, self.plan.loads.len());
            let attempt = Attempt {
                purpose: probe.purpose,
                index,
                attempt: 0,
                seed: step_seed(self.plan.seed, block + repeat * REPEAT_SEEDS, BLOCK_SEEDS + rate_seed),
            };
            self.step(ledger, position, load, attempt).await?;
            let (point, repeat) = (ledger.points.find(&factors), ledger.points.step(&factors, index));
            if let (Some(point), Some(repeat)) = (point, repeat) {
                let evidence = decision::from_run::step(question, &self.plan.limits, point, repeat);
                candidates[probe.candidate].steps.push(evidence);
            }
        }
        Ok(())
    }
}

/// Returns a question's kind of request, at any rate.
pub(crate) fn question_load(question: &Question) -> Load {
    let peak_rps = question.demand.map_or(f64::INFINITY, |demand| demand.peak_rps);
    Load {
        mode: question.mode,
        batch_size: question.batch_size,
        rate: (peak_rps / f64::from(question.least_instances)).min(question.highest_rps),
    }
}

/// Spent budget: the time since the start, and that of a resumed run.
struct BudgetClock {
    start: Instant,
    step_s: f64,
    earlier_steps: u32,
}

impl BudgetClock {
    /// Returns the time at which a budget is used up.
    fn deadline(&self, budget_s: f64) -> Instant {
        let left = budget_s - f64::from(self.earlier_steps) * self.step_s;
        self.start + Duration::from_secs_f64(left.max(0.0))
    }

    fn time(&self, ledger: &Ledger) -> Time {
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let new_steps = steps(ledger).saturating_sub(self.earlier_steps);
        let measuring = (elapsed_s - ledger.patience.waited.as_secs_f64()).max(0.0);
        let step_s = match new_steps {
            0 => self.step_s,
            new_steps => measuring / f64::from(new_steps),
        };
        Time {
            spent_s: elapsed_s + f64::from(self.earlier_steps) * self.step_s,
            step_s,
        }
    }
}

/// Returns the number of steps in the ledger.
fn steps(ledger: &Ledger) -> u32 {
    ledger.points.all().iter().map(|point| point.repeats.len() as u32).sum()
}

fn describe_stop(reason: &StopReason, spent_s: f64) -> String {
    format!("{reason} after {}", duration(spent_s))
}
