//! Journeys at their rates, with one point for the whole and one for each of their steps; and a journey prepared for one target: its
//! templates completed and checked by the models' metadata.
//!
//! A step's requests count at their journey's due time, so that all points of a journey have the same population.

use super::ledger::{PlannedStep, Round, Work};
use super::naming::driven_factors;
use super::recorder::{NamedFailures, goose_figures};
use super::requests::grpc_connections;
use super::send::{PartResults, Results, StepContext};
use super::target::{Content, Target, until_accepted};
use crate::error::RunError;
use crate::plan::{JourneyPlan, Plan, Request, StepInputs, StepPlan};
use crate::server::control::{Control, refusal};
use crate::server::delta;
use anyhow::bail;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::{AgentStart, DriverFigures, Factors, JourneyFigures, Outcome, Sample};
use tierlab_load::by_goose::journey::template::{Template, Usage};
use tierlab_load::by_goose::journey::{
    self, Check, GrpcCall, Journey, JourneyResults, JourneySample, JourneyStep, StepSample, StepTransport, inputs,
};
use tierlab_load::driver::Finished;
use tierlab_load::grpc::Connections;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::keys::{KeyDistribution, Population};
use tierlab_load::live::Watch;
use tierlab_load::pacer::Observed;
use tierlab_load::payload::Protocol;
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::schedule::Schedule;
use tierlab_load::workers::Workers;
use tierlab_load::workers::message::{JourneyOrder, StepOrder};
use tierlab_protocol::metadata::{ENTITY_ID, ModelMetadata};

/// First position of journeys, after all closed loops.
const FIRST_POSITION: usize = 1 << 17;
/// Positions of one journey: its whole and its steps.
const POSITIONS: usize = 64;
/// First seed of journeys, distinct from all others.
const FIRST_SEED: usize = 1 << 25;

/// Every journey at every rate against every target.
pub(super) fn steps<'p>(round: &Round<'p, '_>) -> Vec<PlannedStep<'p>> {
    let mut steps = Vec::new();
    for (number, journey) in round.plan.journeys.iter().enumerate() {
        for (of_rate, &rate) in journey.rates.iter().enumerate() {
            let attempt = round.attempt(FIRST_SEED + number * 4_096 + of_rate);
            let first = FIRST_POSITION + number * POSITIONS;
            let of_targets = round.targets.iter().enumerate();
            steps.extend(of_targets.map(|(index, target)| PlannedStep {
                target: index,
                attempt,
                work: Work::Journeys(journey, rate),
                points: (first..).zip(points(round.plan, target, journey, rate)).collect(),
            }));
        }
    }
    steps
}

/// Returns the point of the whole, then those of its steps.
fn points(plan: &Plan, target: &Target, journey: &JourneyPlan, rate: f64) -> impl Iterator<Item = Factors> {
    let of = move |step: Option<&StepPlan>| {
        let model = step.map_or(plan.model.as_str(), |step| match &step.request {
            Request::Model { model, .. } => model.as_str(),
            Request::Http { path_text, .. } => path_text.as_str(),
        });
        let load = JourneyPlan::load(rate);
        Factors {
            keys: match journey.takes_entity() {
                true => plan.keys.to_string(),
                false => "inline".into(),
            },
            ..driven_factors(plan, target, load, model, journey.driven(step))
        }
    };
    std::iter::once(None).chain(journey.steps.iter().map(Some)).map(of)
}

/// Sends one journey of each kind to each target, and checks every step, before anything is measured.
pub(super) async fn check(plan: &Plan, targets: &[Target], interrupt: &Interrupt) -> Result<(), RunError> {
    for target in targets {
        for journey in &plan.journeys {
            let prepared = PreparedJourney::new(plan, target, journey).await?;
            until_accepted(|| prepared.check_once(interrupt)).await?;
        }
    }
    Ok(())
}

/// Sends journeys at one rate, by `workers` if there are any; `None` if interrupted.
pub(super) async fn send(
    (journey, rate): (&JourneyPlan, f64),
    seed: u64,
    context: &mut StepContext<'_>,
    workers: Option<&mut Workers>,
) -> Result<Option<Results>, RunError> {
    let plan = context.plan;
    let prepared = PreparedJourney::new(plan, context.target, journey).await?;
    let schedule = Arc::new(Schedule::new(&plan.arrivals, rate, plan.warmup, plan.window, seed));
    context.begin().await;
    let running = prepared.begin(rate, (&schedule, seed), context.watch, workers, context.interrupt);
    let Some((travelled, agents)) = running.await? else {
        return Ok(None);
    };
    // Steps without a model are not among the server's requests.
    let of_models = journey.steps.iter().zip(&travelled.steps);
    let of_models = of_models.filter(|(step, _)| matches!(step.request, Request::Model { .. }));
    let counted = delta::RequestCounts::new(of_models.flat_map(|(_, samples)| samples).map(|step| &step.sample));
    let mut parts = vec![whole(journey, &travelled, &schedule, seed)];
    for (samples, examples) in travelled.steps.iter().zip(&travelled.examples) {
        let samples: Vec<Sample> = samples.iter().map(StepSample::from_journey_due).collect();
        let inside = samples.iter().filter(|sample| schedule.in_window(sample.due_us));
        let stays_us: u64 = inside.map(Sample::latency_us).sum();
        let observed = Observed {
            mean_in_flight: stays_us as f64 / 1e6 / schedule.window_s(),
            // Counted for journeys, and reported with the whole.
            ..Observed::default()
        };
        let finished = Finished {
            examples: examples.clone(),
            ..Finished::of(samples, observed, travelled.window_began)
        };
        parts.push(PartResults::new(finished, Arc::clone(&schedule), seed));
    }
    Ok(Some(Results { parts, counted, agents }))
}

/// Whole journeys, with goose's own times, and with the failed step named in their failures and examples.
fn whole(journey: &JourneyPlan, all: &JourneyResults, schedule: &Arc<Schedule>, seed: u64) -> PartResults {
    let mut failures = NamedFailures::default();
    // A journey fails with the one step that ends it.
    for ((step, samples), examples) in journey.steps.iter().zip(&all.steps).zip(&all.examples) {
        let samples = samples.iter();
        for sample in samples.filter(|sample| schedule.in_window(sample.journey_due_us)) {
            if let Outcome::Failed(failure) = sample.sample.outcome {
                let named = format!("{failure} at {}", step.name);
                *failures.errors.entry(named).or_insert(0) += 1;
            }
        }
        for (failure, message) in examples {
            let named = format!("{failure} at {}", step.name);
            if failures.errors.contains_key(&named) {
                failures.examples.insert(named, message.clone());
            }
        }
    }
    let good = || all.journeys.iter().filter(|whole| whole.sample.is_ok());
    let due = good().filter(|whole| schedule.in_window(whole.sample.due_us));
    let goose_us = due.filter_map(|whole| whole.goose_us);
    let samples = all.journeys.iter().map(|whole| whole.sample).collect();
    let finished = Finished::of(samples, all.observed, all.window_began);
    PartResults {
        driver: DriverFigures::Journeys {
            journeys: JourneyFigures {
                completed: good().count() as u64,
                requests: all.steps.iter().map(Vec::len).sum::<usize>() as u64,
            },
            goose: goose_figures(goose_us.collect(), None),
        },
        failures: Some(failures),
        ..PartResults::new(finished, Arc::clone(schedule), seed)
    }
}

/// Journey prepared for one target.
pub(super) struct PreparedJourney<'a> {
    plan: &'a Plan,
    target: &'a Target,
    journey: &'a JourneyPlan,
    steps: Arc<Vec<JourneyStep>>,
    entities: Entities,
}

/// Source of a journey's entities.
#[derive(Debug)]
enum Entities {
    Table(Box<Population>),
    File(Arc<[i64]>),
}

impl<'a> PreparedJourney<'a> {
    pub(super) async fn new(plan: &'a Plan, target: &'a Target, journey: &'a JourneyPlan) -> Result<Self, RunError> {
        let mut models: BTreeMap<&str, ModelMetadata> = BTreeMap::new();
        for model in journey.models() {
            if !models.contains_key(model) {
                models.insert(model, until_accepted(|| target.control.model(model)).await?);
            }
        }
        let refuse = |step: &StepPlan, problem: anyhow::Error| {
            let problem = format!("`{}`, step `{}`: {problem}", journey.name, step.name);
            RunError::from(plan.refuse("journey", problem))
        };
        let over_grpc = journey.speaks_grpc();
        let connections = over_grpc.then(|| grpc_connections(plan, &target.control)).transpose()?;
        let mut steps = Vec::new();
        for step in &journey.steps {
            let names = &journey.values[..step.available];
            let built = journey_step(plan, &target.control, step, names, &models, connections.as_ref());
            steps.push(built.map_err(|problem| refuse(step, problem))?);
        }
        Ok(Self {
            plan,
            target,
            journey,
            steps: Arc::new(steps),
            entities: entities(plan, target, journey, &models)?,
        })
    }

    /// Sends one journey, and checks every step.
    async fn check_once(&self, interrupt: &Interrupt) -> Result<(), RunError> {
        let Self { plan, journey, .. } = *self;
        let single = Arc::new(Schedule {
            due_us: vec![0],
            window_start_us: 0,
            window_end_us: 1,
            window_requests: 1,
            stops: false,
        });
        let drain = plan.timeout * u32::try_from(journey.steps.len()).unwrap_or(u32::MAX);
        let step = Journey {
            users: 1,
            drain: drain + Duration::from_secs(1),
            ..self.journey(&single, plan.seed, &Watch::default())
        };
        let Some(travelled) = Box::pin(journey::run(step, interrupt)).await? else {
            return Err(RunError::InterruptedEarly);
        };
        let Some((at, failure)) = travelled.journeys.first().and_then(JourneySample::failure) else {
            return Ok(());
        };
        let message = travelled.examples[at].get(&failure).map_or("", String::as_str);
        let (name, step, file) = (&journey.name, &journey.steps[at], plan.file.display());
        let is_grpc = matches!(step.request, Request::Model { protocol, .. } if protocol == Protocol::Grpc);
        let control = &self.target.control;
        let grpc = control.grpc.as_ref().filter(|_| is_grpc);
        let address = grpc.map_or_else(|| control.base.clone(), |grpc| grpc.address.url());
        let advice = format!("fix the step in {file}, or the server");
        let problem = format!(
            "journey `{name}`: step `{}` failed with {failure}: {message}; {advice}",
            step.name
        );
        Err(refusal(&address, &problem).after(failure).into())
    }

    /// Starts journeys over a schedule, by `workers` if there are any; with the start uncertainty of their agents.
    /// `None` if interrupted.
    pub(super) async fn begin(
        &self,
        rate: f64,
        (schedule, seed): (&Arc<Schedule>, u64),
        watch: &Watch,
        workers: Option<&mut Workers>,
        interrupt: &Interrupt,
    ) -> Result<Option<(JourneyResults, Vec<AgentStart>)>, RunError> {
        let Some(workers) = workers else {
            let step = self.journey(schedule, seed, watch);
            let travelled = Box::pin(journey::run(step, interrupt)).await?;
            return Ok(travelled.map(|travelled| (travelled, Vec::new())));
        };
        watch.sent_by(workers.size());
        let order = StepOrder {
            target: self.target.control.spec.as_ref().clone(),
            load: JourneyPlan::load(rate),
            seed,
            journey: Some(JourneyOrder {
                name: self.journey.name.clone(),
                steps: self.journey.steps.len(),
            }),
        };
        let sent = tokio::select! {
            sent = workers.run(&order, schedule) => sent?,
            () = interrupt.raised() => return Ok(None),
        };
        let whole = |sample| JourneySample {
            sample,
            failed_at: None,
            goose_us: None,
        };
        let of_step = |sample: Sample| StepSample {
            sample,
            journey_due_us: sample.due_us,
        };
        let (steps, examples) = sent
            .steps
            .into_iter()
            .map(|step| (step.samples.into_iter().map(of_step).collect::<Vec<_>>(), step.examples))
            .unzip();
        let travelled = JourneyResults {
            journeys: sent.finished.samples.into_iter().map(whole).collect(),
            steps,
            observed: sent.finished.observed,
            window_began: sent.finished.window_began,
            examples,
        };
        Ok(Some((travelled, sent.starts)))
    }

    /// Returns the journey to run over a schedule.
    pub(super) fn journey(&self, schedule: &Arc<Schedule>, seed: u64, watch: &Watch) -> Journey {
        let entities = match &self.entities {
            Entities::Table(population) => population.draw(schedule.due_us.len(), seed),
            Entities::File(ids) => ids.to_vec(),
        };
        Journey {
            endpoint: Arc::clone(&self.target.control.endpoint),
            schedule: Arc::clone(schedule),
            entities: Arc::new(entities),
            steps: Arc::clone(&self.steps),
            values: self.journey.values.len(),
            users: self.plan.max_in_flight,
            timeout: self.plan.timeout,
            drain: self.plan.drain,
            watch: watch.clone(),
        }
    }
}

fn journey_step(
    plan: &Plan,
    control: &Control,
    step: &StepPlan,
    names: &[String],
    models: &BTreeMap<&str, ModelMetadata>,
    connections: Option<&Arc<Connections>>,
) -> anyhow::Result<JourneyStep> {
    match &step.request {
        Request::Http {
            method,
            path,
            headers,
            body,
            status,
            ..
        } => {
            // A step's own headers replace those of every request.
            let mut all = control.endpoint.request_headers();
            all.extend(headers.clone());
            Ok(JourneyStep {
                name: step.name.clone(),
                transport: StepTransport::Http {
                    method: method.clone(),
                    path: path.clone(),
                    headers: all,
                },
                body: body.clone(),
                check: Check::Status(*status),
                limit: Limit::of_replies(plan.reply_limit_bytes, None),
                extractions: step.take.clone(),
            })
        }
        Request::Model {
            model,
            protocol,
            content,
        } => {
            // Every model of the journey was asked for.
            let metadata = &models[model.as_str()];
            let (body, rows) = body(content, metadata, model, names)?;
            let expected = Expected::new(model, &metadata.outputs, rows);
            Ok(JourneyStep {
                name: step.name.clone(),
                transport: carrier(control, connections, model, *protocol)?,
                body: Some(body),
                limit: Limit::of_replies(plan.reply_limit_bytes, expected.elements()),
                check: Check::Model(Arc::new(expected)),
                extractions: step.take.clone(),
            })
        }
    }
}

/// Returns the transport for a step's requests to a model.
fn carrier(
    control: &Control,
    connections: Option<&Arc<Connections>>,
    model: &str,
    protocol: Protocol,
) -> anyhow::Result<StepTransport> {
    if let (Protocol::Grpc, Some(connections)) = (protocol, connections) {
        return Ok(StepTransport::Grpc(GrpcCall {
            connections: Arc::clone(connections),
            model: model.to_owned(),
            version: control.model_version().map(str::to_owned),
        }));
    }
    let mut headers = control.endpoint.request_headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(StepTransport::Http {
        method: Method::POST,
        path: Template::parse(&control.infer_path(model), Usage::Path, &[])?,
        headers,
    })
}

/// Returns the body of a request to a model, with the rows of its reply if known.
fn body(
    content: &StepInputs,
    metadata: &ModelMetadata,
    model: &str,
    names: &[String],
) -> anyhow::Result<(Template, Option<u32>)> {
    match content {
        StepInputs::Body(body) => Ok((body.clone(), None)),
        StepInputs::Inputs(values) => Ok((inputs::body(values, &metadata.inputs, names)?, None)),
        StepInputs::Entity if metadata.joined.is_none() => {
            let wanted: Vec<&str> = metadata.inputs.iter().map(|spec| spec.name.as_str()).collect();
            bail!(
                "`{model}` joins no rows, so an entity alone is not a request; give `inputs` ({}) or a `body`",
                wanted.join(", ")
            )
        }
        StepInputs::Entity => {
            let entity = BTreeMap::from([(ENTITY_ID.to_owned(), format!("{{{ENTITY_ID}}}").into())]);
            Ok((inputs::body(&entity, &metadata.inputs, names)?, Some(1)))
        }
    }
}

/// Returns the entities of the first table that any of its models joins, or those of the plan's file.
fn entities(
    plan: &Plan,
    target: &Target,
    journey: &JourneyPlan,
    models: &BTreeMap<&str, ModelMetadata>,
) -> Result<Entities, RunError> {
    if !journey.takes_entity() {
        return Ok(Entities::File([].into()));
    }
    let refuse = |key: &str, problem: String| Err(RunError::from(plan.refuse(key, problem)));
    let name = &journey.name;
    if let KeyDistribution::File { texts, .. } = &plan.keys
        && !texts.is_empty()
    {
        let problem = "the keys of `keys.file` are texts; journeys need integers";
        return refuse("journey", format!("`{name}` uses {{entity_id}}, but {problem}"));
    }
    let of_steps = journey.models().filter_map(|model| models.get(model));
    // Other inputs of a model belong to its step.
    let joined = of_steps.filter_map(|metadata| Content::new(plan, metadata).ok());
    let table = joined
        .chain([target.content.clone()])
        .find_map(|content| match content {
            Content::Joined(population) | Content::Mixed(population, _) => Some(population),
            Content::Inline(_) | Content::Custom { .. } => None,
        });
    match (table, &plan.keys) {
        (Some(population), _) => match population.unknown_id() {
            None => Ok(Entities::Table(Box::new(population))),
            Some(id) => refuse("keys.file", format!("the table of journey `{name}` has no entity {id}")),
        },
        (None, KeyDistribution::File { ids, .. }) => Ok(Entities::File(ids.clone())),
        (None, _) => {
            let problem = "none of its models joins a table that lists the ids; give them by `[keys]` with `distribution = \"file\"`";
            refuse("journey", format!("`{name}` uses {{entity_id}}, but {problem}"))
        }
    }
}
