//! Order of a run: for each repeat, for each load, for each target, one step. So a slow minute of the machine affects
//! every tier alike, and tiers are compared on the same arrivals and keys. A disturbed step is measured again. Searches
//! follow the plan's own loads.
//!
//! In: a runner. Out: a [`Run`] in its folder. Knows neither the origin of a target nor the presentation of results.

use super::ledger::{Ledger, MAX_REPETITIONS, PlannedStep, Round, Work};
use super::naming::{factors, name};
use super::step::Runner;
use super::{decide, journeys, loops_and_mixes};
use crate::error::RunError;
use crate::plan::{Plan, redacted};
use crate::progress::Progress;
use crate::store::folder;
use crate::store::journal::{Journal, Points};
use crate::store::time::rfc3339;
use std::time::SystemTime;
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{
    CarriedCertificate, Check, Driven, Environment, Factors, Point, Run, SCHEMA_VERSION, Verdict,
};
use tierlab_instrument::machine::quiet::QuietWait;

impl<'a> Runner<'a> {
    /// Runs every step that is not in the folder already, of the `new` run or the one to resume, writes the result and prints its answer.
    ///
    /// # Errors
    /// An interruption, a dead process of the lab, or a server that stopped answering; finished steps are written and
    /// printed all the same. A run to resume with other files or servers.
    pub async fn run(mut self, new: Run) -> Result<Run, RunError> {
        let mut run = match self.earlier.take() {
            Some(earlier) => earlier.resume(&new)?,
            None => new,
        };
        journeys::check(self.plan, &self.targets, &self.interrupt).await?;
        let (journal, finished) = Journal::open(&self.folder)?;
        let points = Points::new(finished);
        self.check_earlier(&points)?;
        folder::begin(&run, &self.folder)?;
        let grid = match self.measures_loads() {
            true => self.planned(0, 0).len(),
            false => 0,
        };
        let steps = grid * self.plan.repeats as usize;
        let step = self.plan.warmup + self.plan.window;
        let search_limit = self.plan.search.as_ref().map(|search| search.limit);
        let mut ledger = Ledger {
            journal,
            points,
            progress: Progress::new(steps as u32, step, search_limit, self.verbose),
            unread_steps: 0,
            patience: QuietWait::default(),
            left_out: self.plan.arrivals.left_out(step).into_iter().collect(),
        };
        for line in &ledger.left_out {
            ledger.progress.print(line);
        }
        let outcome = self.steps(&mut run, &mut ledger).await;
        ledger.progress.clear();
        run.interrupted = outcome.is_err();
        if ledger.points.all().is_empty() {
            return match outcome {
                Err(RunError::Interrupted(_)) => Err(RunError::InterruptedEarly),
                Err(error) => Err(error),
                Ok(()) => Ok(run),
            };
        }
        let written = self.write(&mut run, &ledger.points);
        // Printed even if writing failed, so that a full disk does not lose the results.
        if self.verbose {
            print!("{}\n\n", tierlab_report::table(&run));
        }
        let views = written.is_ok().then_some(self.folder.as_path());
        print!("{}", tierlab_report::brief(&run, &self.folder, views));
        written?;
        outcome?;
        ledger.journal.remove()?;
        if ledger.unread_steps > 0 {
            return Err(RunError::Failed(format!(
                "the server's metrics could not be read around {} steps; their stages and counters are not in the result",
                ledger.unread_steps
            )));
        }
        Ok(run)
    }

    /// True if the plan's loads are measured; false if they are only starting points of searches.
    fn measures_loads(&self) -> bool {
        !self.plan.search.as_ref().is_some_and(|search| search.only)
    }

    /// Refuses steps of another server, which cannot share a result with further steps.
    fn check_earlier(&self, points: &Points) -> Result<(), RunError> {
        let planned = self.planned(0, 0).into_iter().flat_map(|step| step.points);
        let mut expected: Vec<Factors> = planned.map(|(_, factors)| factors).collect();
        for load in self.plan.question.iter().map(decide::question_load) {
            let targets = self.targets.iter();
            expected.extend(targets.map(|target| factors(self.plan, target, load, &self.plan.model)));
        }
        // Searches, questions and closed loops choose their own rates.
        let is_chosen = |point: &Point| {
            self.plan.search.is_some()
                || self.plan.question.is_some()
                || matches!(point.factors.driven, Some(Driven::BesideClosedLoop { .. }))
        };
        let is_expected = |point: &&Point| {
            expected.iter().any(|factors| {
                *factors == point.factors || (is_chosen(point) && same_but_rate(factors, &point.factors))
            })
        };
        let Some(point) = points.all().iter().find(|point| !is_expected(point)) else {
            return Ok(());
        };
        let (step_name, share) = (name(&point.factors), point.factors.cache_share);
        let problem =
            format!("finished steps were measured as {step_name} (cache share {share}), which no server matches now");
        let advice = "start it as before, or remove --resume";
        Err(RunError::about(&self.folder, format!("{problem}; {advice}")))
    }

    async fn steps(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        self.decide(run, ledger).await?;
        if self.measures_loads() {
            self.grid(run, ledger).await?;
        }
        self.search(run, ledger).await
    }

    async fn grid(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        let repetitions = if self.plan.measure_once { 0 } else { MAX_REPETITIONS };
        for repeat in 0..self.plan.repeats {
            // Disturbed steps are repeated after all others of their repeat: the disturbance may be over by then.
            for attempt in 0..=repetitions {
                for step in self.planned(repeat, attempt) {
                    self.measure_planned(ledger, step).await?;
                }
            }
            run.left_out.clone_from(&ledger.left_out);
            // Reports are rewritten whenever every point has one more repeat; the journal has every step.
            self.write(run, &ledger.points)?;
        }
        Ok(())
    }

    /// Steps of one repeat of the plan: loads, mixes, closed loops, journeys, each against every target.
    fn planned(&self, repeat: u32, attempt: u32) -> Vec<PlannedStep<'a>> {
        let round = Round {
            plan: self.plan,
            targets: &self.targets,
            repeat,
            attempt,
        };
        let loads = self.plan.loads.iter().enumerate().flat_map(|(number, &load)| {
            let targets = self.targets.iter().enumerate();
            targets.map(move |(target, of)| PlannedStep {
                target,
                attempt: round.attempt(number),
                work: Work::Open(load),
                points: vec![(number, factors(self.plan, of, load, &self.plan.model))],
            })
        });
        let steps = loads.chain(loops_and_mixes::mixes(&round));
        let steps = steps.chain(loops_and_mixes::closed_loops(&round));
        steps.chain(journeys::steps(&round)).collect()
    }

    /// Measures a planned step if it is due: its first attempt if a point is missing, a later one after a disturbance.
    async fn measure_planned(&mut self, ledger: &mut Ledger, mut step: PlannedStep<'_>) -> Result<(), RunError> {
        if let Work::Paired(closed) = step.work {
            let paired = &mut step.points[0].1;
            let target = &self.targets[step.target];
            let rate = loops_and_mixes::paired_rate(self.plan, target, closed, (&ledger.points, paired))?;
            let Some(rate) = rate else {
                // The table shows the missing point.
                if step.attempt.attempt == 0 {
                    ledger.progress.skip();
                }
                return Ok(());
            };
            paired.offered_rps = rate;
            step.work = Work::Open(closed.load(rate));
        }
        if let Some(saturated) = self.saturated_below(ledger, &step) {
            if step.attempt.attempt == 0 {
                ledger.leave_out(saturated);
            }
            return Ok(());
        }
        match ledger.is_due(step.points.iter().map(|(_, factors)| factors), step.attempt) {
            true => self.measure(ledger, step).await,
            false => Ok(()),
        }
    }

    /// Sentence about a saturated rate below that of a planned load, if the plan then leaves it out.
    fn saturated_below(&self, ledger: &Ledger, step: &PlannedStep<'_>) -> Option<String> {
        let (_, factors) = step.points.first().filter(|_| self.plan.stop_at_saturation)?;
        let is_below = |point: &&Point| {
            let is_lower = point.factors.offered_rps < factors.offered_rps;
            is_lower && same_but_rate(&point.factors, factors) && matches!(step.work, Work::Open(_))
        };
        let is_saturated = |point: &&Point| {
            let verdict = tierlab_analysis::summary(point, &self.plan.limits, None).verdict;
            matches!(verdict, Verdict::Saturated(_))
        };
        let below = ledger.points.all().iter().filter(is_below).find(is_saturated)?;
        let below = name(&below.factors);
        Some(format!("{below}: saturated, so that higher rates were left out"))
    }
}

/// State of the instrument before the first step.
#[derive(Debug)]
pub struct Instrument {
    /// Lines of the self-check, if the run performs its own.
    pub selfcheck: Vec<Check>,
    /// Latest certificate of this machine, possibly of this very self-check.
    pub certificate: CarriedCertificate,
    /// Noise floor: the plan's highest load on a null endpoint.
    pub noise_floor: Option<Point>,
}

/// Run without any step.
pub fn new_run(plan: &Plan, environment: Environment, instrument: Instrument) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        name: plan.name.clone(),
        started_at: rfc3339(SystemTime::now()),
        // Until the last step is finished.
        interrupted: true,
        plan_toml: redacted(&plan.text),
        protocol: plan.protocol.to_string(),
        environment,
        noise_floor: instrument.noise_floor,
        selfcheck: instrument.selfcheck,
        certificates: vec![instrument.certificate],
        limits: plan.limits.clone(),
        slo: plan.search.as_ref().map(|search| search.slo),
        question: plan.question.clone(),
        ..Run::default()
    }
}
