//! Journeys at their rates, with one point for the whole and one for each of their steps.
//!
//! A step's requests count at their journey's due time, so that all points of a journey have the same population.

use super::journey_requests::Prepared;
use super::ledger::{PlannedStep, Round, Work};
use super::naming::driven_factors;
use super::recorder::{NamedFailures, goose_figures};
use super::send::{Around, Part, Sent};
use super::target::Target;
use crate::error::RunError;
use crate::plan::{Ask, JourneyPlan, Plan, StepPlan};
use crate::server::delta;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::{DriverFigures, Factors, JourneyFigures, Outcome, Sample};
use tierlab_load::by_goose::journey::{self, StepSample, Travelled};
use tierlab_load::driver::Finished;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::Schedule;
use tierlab_load::workers::Workers;

/// First position of journeys, after all closed loops.
const PLACE: usize = 1 << 17;
/// Positions of one journey: its whole and its steps.
const PLACES: usize = 64;
/// First seed of journeys, distinct from all others.
const OF_LOAD: usize = 1 << 25;

/// Every journey at every rate against every target.
pub(super) fn steps<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let mut steps = Vec::new();
    for (number, journey) in round.plan.journeys.iter().enumerate() {
        for (of_rate, &rate) in journey.rates.iter().enumerate() {
            let attempt = round.attempt(OF_LOAD + number * 4_096 + of_rate);
            let positions = PLACE + number * PLACES..;
            let of_targets = round.targets.iter().enumerate();
            steps.extend(of_targets.map(|(index, target)| {
                PlannedStep {
                    target: index,
                    attempt,
                    work: Work::Journeys(journey, rate),
                    points: positions
                        .clone()
                        .zip(points(round.plan, target, journey, rate))
                        .collect(),
                }
            }));
        }
    }
    steps
}

/// Returns the point of the whole, then those of its steps.
fn points(plan: &Plan, target: &Target, journey: &JourneyPlan, rate: f64) -> impl Iterator<Item = Factors> {
    let of = move |step: Option<&StepPlan>| {
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
    std::iter::once(None).chain(journey.steps.iter().map(Some)).map(of)
}

/// Distinct models of a journey; the plan's own if it uses none.
pub(super) fn models<'a>(plan: &'a Plan, journey: &'a JourneyPlan) -> Vec<&'a str> {
    let mut models: Vec<&str> = journey.models().collect();
    models.sort_unstable();
    models.dedup();
    if models.is_empty() {
        models.push(&plan.model);
    }
    models
}

/// Sends one journey of each kind to each target, and checks every step, before anything is measured.
pub(super) async fn check(plan: &Plan, targets: &[Target], interrupt: &Interrupt) -> Result<(), RunError> {
    for target in targets {
        for journey in &plan.journeys {
            let prepared = Prepared::of(plan, target, journey).await?;
            let one = Arc::new(Schedule {
                due_us: vec![0],
                window_start_us: 0,
                window_end_us: 1,
                window_requests: 1,
                stops: false,
            });
            let drain = plan.timeout * u32::try_from(journey.steps.len()).unwrap_or(u32::MAX);
            let step = journey::Journey {
                users: 1,
                drain: drain + Duration::from_secs(1),
                ..prepared.journey(&one, plan.seed, &Watch::default())
            };
            let Some(travelled) = Box::pin(journey::run(step, interrupt)).await? else {
                return Err(RunError::InterruptedEarly);
            };
            if let Some((at, failure)) = travelled.journeys.first().and_then(journey::Whole::failure) {
                let says = travelled.examples[at].get(&failure).cloned().unwrap_or_default();
                return Err(RunError::Unsound(format!(
                    "journey `{}` at {}: the first attempt failed at step `{}` with {failure}: {says}; fix the step in {}, or the \
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

/// Sends journeys at one rate, by `workers` if there are any; `None` if interrupted.
pub(super) async fn send(
    (journey, rate): (&JourneyPlan, f64),
    seed: u64,
    around: &mut Around<'_>,
    workers: Option<&mut Workers>,
) -> Result<Option<Sent>, RunError> {
    let plan = around.plan;
    let prepared = Prepared::of(plan, around.target, journey).await?;
    let schedule = Arc::new(Schedule::new(&plan.arrivals, rate, plan.warmup, plan.window, seed));
    around.begin().await;
    let begun = prepared.begin(rate, (&schedule, seed), around.watch, workers, around.interrupt);
    let Some((travelled, agents)) = begun.await? else {
        return Ok(None);
    };
    // Steps without a model are not among the server's requests.
    let of_models = journey.steps.iter().zip(&travelled.steps);
    let of_models = of_models.filter(|(step, _)| matches!(step.ask, Ask::Model { .. }));
    let counted = delta::Requests::of(of_models.flat_map(|(_, samples)| samples).map(|step| &step.sample));
    let mut parts = vec![whole(journey, &travelled, &schedule, seed)];
    for (samples, examples) in travelled.steps.iter().zip(&travelled.examples) {
        let samples: Vec<Sample> = samples.iter().map(StepSample::where_due).collect();
        let inside = samples.iter().filter(|sample| schedule.in_window(sample.due_us));
        let stays_us: u64 = inside.map(Sample::latency_us).sum();
        let finished = Finished {
            streams: Vec::new(),
            kept: Vec::new(),
            samples,
            observed: Observed {
                mean_in_flight: stays_us as f64 / 1e6 / schedule.window_s(),
                // Counted for journeys, and reported with the whole.
                ..Observed::default()
            },
            window_began: travelled.window_began,
            examples: examples.clone(),
        };
        parts.push(Part::of(finished, Arc::clone(&schedule), seed));
    }
    Ok(Some(Sent { parts, counted, agents }))
}

/// Whole journeys, with goose's own times, and with the failed step named in their failures and examples.
fn whole(journey: &JourneyPlan, all: &Travelled, schedule: &Arc<Schedule>, seed: u64) -> Part {
    let mut failures = NamedFailures::default();
    // A journey fails with the one step that ends it.
    for (step, samples) in journey.steps.iter().zip(&all.steps) {
        for sample in samples
            .iter()
            .filter(|sample| schedule.in_window(sample.journey_due_us))
        {
            if let Outcome::Failed(failure) = sample.sample.outcome {
                let named = format!("{failure} at {}", step.name);
                *failures.errors.entry(named).or_insert(0) += 1;
            }
        }
    }
    for (step, says) in journey.steps.iter().zip(&all.examples) {
        let says = says
            .iter()
            .map(|(failure, says)| (format!("{failure} at {}", step.name), says.clone()));
        failures
            .examples
            .extend(says.filter(|(key, _)| failures.errors.contains_key(key)));
    }
    let good = || all.journeys.iter().filter(|whole| whole.sample.is_ok());
    let goose_us = good()
        .filter(|whole| schedule.in_window(whole.sample.due_us))
        .filter_map(|whole| whole.goose_us);
    let finished = Finished {
        streams: Vec::new(),
        kept: Vec::new(),
        samples: all.journeys.iter().map(|whole| whole.sample).collect(),
        observed: all.observed,
        window_began: all.window_began,
        examples: BTreeMap::new(),
    };
    Part {
        driver: DriverFigures::Journeys {
            journeys: JourneyFigures {
                completed: good().count() as u64,
                requests: all.steps.iter().map(Vec::len).sum::<usize>() as u64,
            },
            goose: goose_figures(goose_us.collect(), None),
        },
        failures: Some(failures),
        ..Part::of(finished, Arc::clone(schedule), seed)
    }
}
