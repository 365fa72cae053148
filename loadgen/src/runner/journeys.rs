//! Runs journeys at their rates, with one point for the whole and one for each of their steps.
//!
//! In: a runner. Out: more steps in its journal, with a position for each point of a journey at one rate. A step's
//! requests count at their journey's due time, so that all points of a journey have the same population.

use super::journey_requests::Prepared;
use super::ledger::{Attempt, Ledger};
use super::naming::{driven_factors, name};
use super::recorder::{self, goose_figures};
use super::send::{Around, Beside};
use super::step::Runner;
use super::target::Target;
use crate::error::RunError;
use crate::plan::{Ask, JourneyPlan, Plan, StepPlan};
use crate::server::delta;
use crate::store::journal::Position;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::{AgentStart, DriverFigures, Factors, Failure, JourneyFigures, Outcome, Repeat, Sample};
use tierlab_load::by_goose::journey::{self, StepSample, Travelled};
use tierlab_load::driver::Finished;
use tierlab_load::live::Watch;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::{Schedule, split_mix};

/// First position of journeys, after all closed loops.
const PLACE: usize = 1 << 17;
/// Positions of one journey: its whole and its steps.
const PLACES: usize = 64;
/// First seed of journeys, distinct from all others.
const OF_LOAD: usize = 1 << 25;

/// Returns the points of a plan's journeys on one target.
pub(super) fn expected(plan: &Plan, target: &Target) -> Vec<Factors> {
    let rates = |journey: &JourneyPlan| journey.rates.clone();
    let all = plan.journeys.iter().flat_map(|journey| {
        rates(journey)
            .into_iter()
            .flat_map(move |rate| points(plan, target, journey, rate))
    });
    all.collect()
}

/// Returns the point of the whole, then those of its steps.
fn points(plan: &Plan, target: &Target, journey: &JourneyPlan, rate: f64) -> Vec<Factors> {
    let of = |step: Option<&StepPlan>| {
        let model = step.map_or(plan.model.as_str(), |step| match &step.ask {
            Ask::Model { model, .. } => model.as_str(),
            Ask::Http { path_text, .. } => path_text.as_str(),
        });
        let load = JourneyPlan::load(rate);
        let keys = if journey.takes_entity() {
            plan.keys.to_string()
        } else {
            "inline".into()
        };
        Factors {
            keys,
            ..driven_factors(plan, target, load, model, journey.driven(step))
        }
    };
    std::iter::once(of(None))
        .chain(journey.steps.iter().map(|step| of(Some(step))))
        .collect()
}

impl Runner<'_> {
    /// Sends one journey of each kind to each target, and checks every step, before anything is measured.
    pub(super) async fn check_journeys(&self) -> Result<(), RunError> {
        let plan = self.plan;
        if plan.journeys.is_empty() {
            return Ok(());
        }
        for target in &self.targets {
            for journey in &plan.journeys {
                let prepared = Prepared::of(plan, target, journey).await?;
                let one = Arc::new(Schedule {
                    due_us: vec![0],
                    window_start_us: 0,
                    window_end_us: 1,
                    window_requests: 1,
                });
                let drain = plan.timeout * u32::try_from(journey.steps.len()).unwrap_or(u32::MAX);
                let step = journey::Journey {
                    users: 1,
                    drain: drain + Duration::from_secs(1),
                    ..prepared.journey(&one, plan.seed, &Watch::default())
                };
                let Some(travelled) = Box::pin(journey::run(step, &self.interrupt)).await? else {
                    return Err(RunError::InterruptedEarly);
                };
                if let Some((at, failure)) = travelled.journeys.first().and_then(journey::Whole::failure) {
                    let says = travelled.examples[at].get(&failure).cloned().unwrap_or_default();
                    return Err(RunError::Unsound(format!(
                        "journey `{}` at {}: its first try failed at step `{}` with {failure}: {says}; mend the step in {}, or the \
                         server",
                        journey.name,
                        target.control.base,
                        journey.steps[at].name,
                        plan.file.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Runs every journey at every rate against every target; in a later attempt only those with a disturbed step.
    pub(super) async fn journeys(&mut self, repeat: u32, attempt: u32, ledger: &mut Ledger) -> Result<(), RunError> {
        let plan = self.plan;
        for (number, journey) in plan.journeys.iter().enumerate() {
            for (of_rate, &rate) in journey.rates.iter().enumerate() {
                for target in 0..self.targets.len() {
                    let attempt = Attempt::of(plan, repeat, attempt, OF_LOAD + number * 4_096 + of_rate);
                    let load = PLACE + number * PLACES;
                    self.travel(ledger, Position { target, load }, (journey, rate), attempt)
                        .await?;
                }
            }
        }
        Ok(())
    }

    async fn travel(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        (journey, rate): (&JourneyPlan, f64),
        attempt: Attempt,
    ) -> Result<(), RunError> {
        let plan = self.plan;
        let target = self.targets[position.target].clone();
        let all = points(plan, &target, journey, rate);
        // The last point is recorded last: if it exists, all do.
        let last = &all[all.len() - 1];
        if !ledger.is_due([last], attempt) {
            return Ok(());
        }
        self.until_quiet(ledger, position.target).await;
        let measured = self.carry(ledger, &target, (journey, rate), attempt, &all[0]).await?;
        self.still_there(ledger, position, attempt.index, last, &measured.beside)
            .await?;
        let mut lines = Vec::new();
        for (place, factors) in all.into_iter().enumerate() {
            let repeat = measured.repeat(place, &factors);
            let position = Position {
                load: position.load + place,
                ..position
            };
            lines.push(self.keep(ledger, position, factors, repeat, measured.beside.watched.as_ref())?);
        }
        ledger.progress.finish(&lines.join("\n    "));
        Ok(())
    }

    /// Runs journeys at one rate, and starts over if an agent is lost meanwhile.
    async fn carry<'a>(
        &mut self,
        ledger: &mut Ledger,
        target: &Target,
        (journey, rate): (&'a JourneyPlan, f64),
        mut attempt: Attempt,
        whole: &Factors,
    ) -> Result<Measured<'a>, RunError> {
        let plan = self.plan;
        let mut lost_before = Vec::new();
        loop {
            (self.alive)()?;
            (self.prepare)(target)?;
            let prepared = Prepared::of(plan, target, journey).await?;
            let models: Vec<&str> = prepared.models.iter().map(String::as_str).collect();
            let watch = ledger.progress.begin(&name(whole));
            let schedule = Schedule::new(&plan.arrivals, rate, plan.warmup, plan.window, attempt.seed);
            let schedule = Arc::new(schedule);
            let mut around = Around::watch(plan, &target.control, &models);
            around.begin().await;
            let workers = self.senders.workers.as_mut();
            let begun = prepared.begin(rate, (&schedule, attempt.seed), &watch, workers, &self.interrupt);
            let sent = Box::pin(begun).await;
            let kept = self
                .senders
                .kept(sent, &mut lost_before, &self.interrupt, &self.folder)
                .await?;
            let Some((travelled, agents)) = kept else {
                // A cache holds the entities of the lost attempt.
                attempt.seed = split_mix(attempt.seed);
                continue;
            };
            // Steps without a model are not among the server's requests.
            let of_models = journey.steps.iter().zip(&travelled.steps);
            let of_models = of_models.filter(|(step, _)| matches!(step.ask, Ask::Model { .. }));
            let requests = delta::Requests::of(of_models.flat_map(|(_, samples)| samples).map(|step| &step.sample));
            let beside = around.end(requests, travelled.window_began).await;
            let mut steps = travelled.steps.iter().flatten();
            let is_unanswered = !steps.any(|step| step.sample.is_ok());
            return Ok(Measured {
                journey,
                travelled,
                schedule,
                beside: Beside {
                    is_unanswered,
                    ..beside
                },
                attempt,
                agents,
                lost_before,
            });
        }
    }
}

/// One measurement of a journey at one rate.
struct Measured<'a> {
    journey: &'a JourneyPlan,
    travelled: Travelled,
    schedule: Arc<Schedule>,
    beside: Beside,
    attempt: Attempt,
    agents: Vec<AgentStart>,
    lost_before: Vec<String>,
}

impl Measured<'_> {
    /// Returns the repeat of a point: index 0 is the whole, its steps follow.
    fn repeat(&self, place: usize, factors: &Factors) -> Repeat {
        let label = self.attempt.label(factors);
        let finished = match place.checked_sub(1) {
            None => self.whole(),
            Some(step) => self.step(step),
        };
        let repeat = Repeat {
            attempt: self.attempt.attempt,
            agents: self.agents.clone(),
            lost_before: self.lost_before.clone(),
            ..recorder::record(label, &finished, &self.schedule, self.beside.server.clone())
        };
        if place > 0 {
            repeat
        } else {
            self.with_steps_named(repeat)
        }
    }

    fn whole(&self) -> Finished {
        Finished {
            samples: self.travelled.journeys.iter().map(|whole| whole.sample).collect(),
            observed: self.travelled.observed,
            window_began: self.travelled.window_began,
            examples: BTreeMap::new(),
        }
    }

    /// Names the failed step in the failures and examples of whole journeys, and adds goose's own times.
    fn with_steps_named(&self, repeat: Repeat) -> Repeat {
        let in_window = |due_us: u64| self.schedule.in_window(due_us);
        let (mut errors, mut examples) = (BTreeMap::new(), BTreeMap::new());
        // A journey fails with the one step that ends it.
        for (step, samples) in self.journey.steps.iter().zip(&self.travelled.steps) {
            let due = samples.iter().filter(|sample| in_window(sample.journey_due_us));
            for failure in due.filter_map(|sample| failure_of(&sample.sample)) {
                *errors.entry(format!("{failure} at {}", step.name)).or_insert(0) += 1;
            }
        }
        for (step, says) in self.journey.steps.iter().zip(&self.travelled.examples) {
            let says = says
                .iter()
                .map(|(failure, says)| (format!("{failure} at {}", step.name), says.clone()));
            examples.extend(says.filter(|(key, _)| errors.contains_key(key)));
        }
        let journeys = self.travelled.journeys.iter();
        let goose_us = journeys
            .filter(|whole| in_window(whole.sample.due_us))
            .filter(|whole| whole.sample.is_ok())
            .filter_map(|whole| whole.goose_us);
        let all = &self.travelled;
        Repeat {
            errors,
            examples,
            driver: DriverFigures::Journeys {
                journeys: JourneyFigures {
                    completed: all.journeys.iter().filter(|whole| whole.sample.is_ok()).count() as u64,
                    requests: all.steps.iter().map(Vec::len).sum::<usize>() as u64,
                },
                goose: goose_figures(goose_us.collect(), None),
            },
            ..repeat
        }
    }

    fn step(&self, step: usize) -> Finished {
        let samples: Vec<Sample> = self.travelled.steps[step].iter().map(StepSample::where_due).collect();
        let inside = samples.iter().filter(|sample| self.schedule.in_window(sample.due_us));
        let stays_us: u64 = inside.map(Sample::latency_us).sum();
        Finished {
            samples,
            observed: Observed {
                // Counted for journeys, and reported with the whole.
                limit_hit: false,
                mean_in_flight: stays_us as f64 / 1e6 / self.schedule.window_s(),
            },
            window_began: self.travelled.window_began,
            examples: self.travelled.examples[step].clone(),
        }
    }
}

const fn failure_of(sample: &Sample) -> Option<Failure> {
    match sample.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Ok => None,
    }
}
