//! Order of a run: for each repeat, for each load, for each target, one step. So a slow minute of the machine affects
//! every tier alike, and tiers are compared on the same arrivals and keys. A disturbed step is measured again. Searches
//! follow the plan's own loads.
//!
//! In: a runner. Out: a [`Run`] in its folder. Knows neither the origin of a target nor the presentation of results.

use super::closed_loops;
use super::decide;
use super::journeys;
use super::ledger::{AGAIN, Attempt, Ledger};
use super::mixed;
use super::naming::{factors, name};
use super::step::Runner;
use crate::error::RunError;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::selfcheck::prove::Instrument;
use crate::store::folder;
use crate::store::journal::{Journal, Points, Position};
use crate::store::time::rfc3339;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tierlab_analysis::curves::same_but_rate;
use tierlab_analysis::record::{Driven, Environment, Factors, Point, Run, SCHEMA_VERSION};
use tierlab_instrument::machine::quiet::Patience;
use tierlab_load::redact;

impl Runner<'_> {
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
        self.check_journeys().await?;
        let (journal, finished) = Journal::open(&self.folder)?;
        let points = Points::of(finished);
        self.check_earlier(&points)?;
        folder::begin(&run, &self.folder)?;
        let grid = if self.measures_loads() {
            let of_mixes: usize = self.plan.mixes.iter().map(|mix| mix.rates.len()).sum();
            let of_journeys: usize = self.plan.journeys.iter().map(|journey| journey.rates.len()).sum();
            self.plan.loads.len() + of_mixes + 2 * self.plan.closed_loops.len() + of_journeys
        } else {
            0
        };
        let steps = self.targets.len() * grid * self.plan.repeats as usize;
        let mut ledger = Ledger {
            journal,
            points,
            progress: Progress::new(
                steps as u32,
                self.plan.warmup + self.plan.window,
                self.plan.search.as_ref().map(|search| search.limit),
                self.verbose,
            ),
            unanswered: 0,
            patience: Patience::default(),
        };
        let ended = self.steps(&mut run, &mut ledger).await;
        ledger.progress.clear();
        run.interrupted = ended.is_err();
        if ledger.points.all().is_empty() {
            return match ended {
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
        print!("{}", tierlab_report::brief(&run, &self.folder, Some(&self.folder)));
        written?;
        ended?;
        ledger.journal.remove()?;
        if ledger.unanswered > 0 {
            return Err(RunError::Unsound(format!(
                "the server's metrics could not be read around {} steps; their stages and counters are not in the result",
                ledger.unanswered
            )));
        }
        self.met_somewhere(&run)?;
        Ok(run)
    }

    /// True if the plan's loads are measured; false if they are only starting points of searches.
    fn measures_loads(&self) -> bool {
        !self.plan.search.as_ref().is_some_and(|search| search.only)
    }

    /// Refuses steps of another server, which cannot share a result with further steps.
    fn check_earlier(&self, points: &Points) -> Result<(), RunError> {
        let expected: Vec<Factors> = self
            .targets
            .iter()
            .flat_map(|target| {
                let loads = self.plan.loads.iter();
                let loads = loads.map(|&load| factors(self.plan, target, load, &self.plan.model));
                let asked = self.plan.question.iter().map(decide::asked);
                let asked = asked.map(|load| factors(self.plan, target, load, &self.plan.model));
                loads
                    .chain(mixed::expected(self.plan, target))
                    .chain(closed_loops::expected(self.plan, target))
                    .chain(journeys::expected(self.plan, target))
                    .chain(asked)
                    .collect::<Vec<_>>()
            })
            .collect();
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
        match points.all().iter().find(|point| !is_expected(point)) {
            None => Ok(()),
            Some(point) => Err(RunError::Usage(format!(
                "{}: finished steps were measured as {} (cache share {}), which no server is now; start it as it was, or \
                 leave out --resume",
                self.folder.display(),
                name(&point.factors),
                point.factors.cache_share
            ))),
        }
    }

    async fn steps(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        self.decide(run, ledger).await?;
        if self.measures_loads() {
            self.grid(run, ledger).await?;
        }
        self.search(run, ledger).await
    }

    async fn grid(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        for repeat in 0..self.plan.repeats {
            // Disturbed steps are repeated after all others of their repeat: the disturbance may be over by then.
            for attempt in 0..=AGAIN {
                self.loads(repeat, attempt, ledger).await?;
                self.mixes(repeat, attempt, ledger).await?;
                self.closed_loops(repeat, attempt, ledger).await?;
                self.journeys(repeat, attempt, ledger).await?;
            }
            // Reports are rewritten whenever every point has one more repeat; the journal has every step.
            self.write(run, &ledger.points)?;
        }
        Ok(())
    }

    /// Runs every load against every target; in a later attempt only those with a disturbed step.
    async fn loads(&mut self, repeat: u32, attempt: u32, ledger: &mut Ledger) -> Result<(), RunError> {
        for (load_index, &load) in self.plan.loads.iter().enumerate() {
            let attempt = Attempt::of(self.plan, repeat, attempt, load_index);
            for target_index in 0..self.targets.len() {
                let factors = factors(self.plan, &self.targets[target_index], load, &self.plan.model);
                if !ledger.is_due([&factors], attempt) {
                    continue;
                }
                let position = Position {
                    target: target_index,
                    load: load_index,
                };
                self.step(ledger, position, load, attempt).await?;
            }
        }
        Ok(())
    }
}

/// Run without any step.
#[must_use]
pub fn new_run(plan: &Plan, environment: Environment, instrument: Instrument) -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        name: plan.name.clone(),
        started_at: rfc3339(SystemTime::now()),
        finished_at: String::new(),
        // Until the last step is finished.
        interrupted: true,
        resumed: Vec::new(),
        plan_toml: redact::toml(&plan.text),
        protocol: plan.protocol.to_string(),
        config_sha256: BTreeMap::new(),
        environment,
        noise_floor: instrument.noise_floor,
        selfcheck: instrument.selfcheck,
        certificates: vec![instrument.certificate],
        limits: plan.limits.clone(),
        pricing: None,
        slo: plan.search.as_ref().map(|search| search.slo),
        findings: Vec::new(),
        cold_starts: Vec::new(),
        search_stopped: None,
        question: plan.question.clone(),
        question_spent_s: None,
        variants: Vec::new(),
        answer: None,
        points: Vec::new(),
    }
}
