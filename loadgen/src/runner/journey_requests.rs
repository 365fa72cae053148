//! Prepares a plan's journey for one target: completes its templates and checks by the models' metadata.
//!
//! In: a journey of a plan, and a target. Out: a journey for `tierlab-load`. Sends only requests for metadata, before a
//! step.

use super::requests::grpc_connections;
use super::target::{Content as Asked, Target};
use crate::error::RunError;
use crate::plan::{Ask, Content, JourneyPlan, Plan, StepPlan};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_analysis::record::{AgentStart, Sample};
use tierlab_load::by_goose::journey::template::{Place, Template};
use tierlab_load::by_goose::journey::{
    self, Check, GrpcCall, Journey, JourneyStep, StepCarrier, StepSample, Travelled, Whole, inputs,
};
use tierlab_load::endpoint::Endpoint;
use tierlab_load::grpc::Connections;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::keys::{KeyDistribution, Population};
use tierlab_load::live::Watch;
use tierlab_load::payload::Protocol;
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::schedule::Schedule;
use tierlab_load::workers::Workers;
use tierlab_load::workers::message::{JourneyOrder, StepOrder};
use tierlab_protocol::metadata::{ENTITY_ID, ModelMetadata};

/// Journey prepared for one target.
pub(super) struct Prepared<'a> {
    plan: &'a Plan,
    target: &'a Target,
    journey: &'a JourneyPlan,
    endpoint: Arc<Endpoint>,
    steps: Arc<Vec<JourneyStep>>,
    values: usize,
    entities: Entities,
}

/// Source of a journey's entities.
#[derive(Debug)]
enum Entities {
    None,
    Table(Box<Population>),
    File(Arc<[i64]>),
}

impl<'a> Prepared<'a> {
    pub(super) async fn of(plan: &'a Plan, target: &'a Target, journey: &'a JourneyPlan) -> Result<Self, RunError> {
        let mut known: BTreeMap<&str, ModelMetadata> = BTreeMap::new();
        for model in journey.models() {
            if !known.contains_key(model) {
                known.insert(model, target.control.model(model).await?);
            }
        }
        let refuse = |step: &StepPlan, what: String| {
            let what = format!("`{}`, step `{}`: {what}", journey.name, step.name);
            RunError::from(plan.refuse("journey", what))
        };
        let connections = match journey.speaks_grpc() {
            true => Some(grpc_connections(plan, &target.control)?),
            false => None,
        };
        let around = Around {
            plan,
            target,
            journey,
            known: &known,
            connections: connections.as_ref(),
        };
        let mut steps = Vec::new();
        for step in &journey.steps {
            let made = made(&around, step).map_err(|what| refuse(step, what))?;
            steps.push(made);
        }
        Ok(Self {
            plan,
            target,
            journey,
            endpoint: Arc::clone(&target.control.endpoint),
            steps: Arc::new(steps),
            values: journey.values.len(),
            entities: entities(plan, target, journey, &known)?,
        })
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
    ) -> Result<Option<(Travelled, Vec<AgentStart>)>, RunError> {
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
        let whole = |sample| Whole {
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
        let travelled = Travelled {
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
            Entities::None => Vec::new(),
            Entities::Table(population) => population.draw(schedule.due_us.len(), seed),
            Entities::File(ids) => ids.to_vec(),
        };
        Journey {
            endpoint: Arc::clone(&self.endpoint),
            schedule: Arc::clone(schedule),
            entities: Arc::new(entities),
            steps: Arc::clone(&self.steps),
            values: self.values,
            users: self.plan.max_in_flight,
            timeout: self.plan.timeout,
            drain: self.plan.drain,
            watch: watch.clone(),
        }
    }
}

/// Merges headers; a step's own override those of every request.
fn with(mut every: HeaderMap, own: &HeaderMap) -> HeaderMap {
    for (name, value) in own {
        every.insert(name.clone(), value.clone());
    }
    every
}

/// Context in which a step is prepared.
struct Around<'a> {
    plan: &'a Plan,
    target: &'a Target,
    journey: &'a JourneyPlan,
    /// Metadata of its models.
    known: &'a BTreeMap<&'a str, ModelMetadata>,
    /// Connections of a journey over gRPC.
    connections: Option<&'a Arc<Connections>>,
}

fn made(around: &Around<'_>, step: &StepPlan) -> Result<JourneyStep, String> {
    let Around { plan, target, .. } = *around;
    match &step.ask {
        Ask::Http {
            method,
            path,
            headers,
            body,
            status,
            ..
        } => Ok(JourneyStep {
            name: step.name.clone(),
            carrier: StepCarrier::Http {
                method: method.clone(),
                path: path.clone(),
                headers: with(target.control.endpoint.request_headers(), headers),
            },
            body: body.clone(),
            check: Check::Status(*status),
            limit: Limit::of_replies(plan.reply_limit_bytes, None),
            take: step.take.clone(),
        }),
        Ask::Model {
            model,
            protocol,
            content,
        } => {
            let Some(metadata) = around.known.get(model.as_str()) else {
                unreachable!("every model of the journey was asked for");
            };
            let names = &around.journey.values[..step.known];
            let (body, rows) = body(content, metadata, model, names)?;
            let expected = Expected::new(model, &metadata.outputs, rows);
            Ok(JourneyStep {
                name: step.name.clone(),
                carrier: carrier(around, model, *protocol)?,
                body: Some(body),
                limit: Limit::of_replies(plan.reply_limit_bytes, expected.elements()),
                check: Check::Model(Arc::new(expected)),
                take: step.take.clone(),
            })
        }
    }
}

/// Returns the transport for a step's requests to a model.
fn carrier(around: &Around<'_>, model: &str, protocol: Protocol) -> Result<StepCarrier, String> {
    let control = &around.target.control;
    if let (Protocol::Grpc, Some(connections)) = (protocol, around.connections) {
        return Ok(StepCarrier::Grpc(GrpcCall {
            connections: Arc::clone(connections),
            model: model.to_owned(),
            version: control.model_version().map(str::to_owned),
        }));
    }
    let mut headers = control.endpoint.request_headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(StepCarrier::Http {
        method: Method::POST,
        path: Template::parse(&control.infer_path(model), Place::Path, &[])?,
        headers,
    })
}

/// Returns the body of a request to a model, with the rows of its reply if known.
fn body(
    content: &Content,
    metadata: &ModelMetadata,
    model: &str,
    names: &[String],
) -> Result<(Template, Option<u32>), String> {
    match content {
        Content::Body(body) => Ok((body.clone(), None)),
        Content::Inputs(given) => Ok((inputs::body(given, &metadata.inputs, names)?, None)),
        Content::Entity if metadata.joined.is_none() => {
            let wanted: Vec<&str> = metadata.inputs.iter().map(|spec| spec.name.as_str()).collect();
            Err(format!(
                "`{model}` joins no rows, so an entity alone is not a request; give `inputs` ({}) or a `body`",
                wanted.join(", ")
            ))
        }
        Content::Entity => {
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
    known: &BTreeMap<&str, ModelMetadata>,
) -> Result<Entities, RunError> {
    if !journey.takes_entity() {
        return Ok(Entities::None);
    }
    if let KeyDistribution::File { texts, .. } = &plan.keys
        && !texts.is_empty()
    {
        let what = format!(
            "`{}` uses {{entity_id}}, but the keys of `keys.file` are texts; journeys need integers",
            journey.name
        );
        return Err(plan.refuse("journey", what).into());
    }
    let of_steps = journey.models().filter_map(|model| known.get(model));
    // Other inputs of a model belong to its step.
    let joined = of_steps.filter_map(|metadata| Asked::of(plan, metadata).ok());
    let table = joined
        .chain([target.content.clone()])
        .find_map(|content| match content {
            Asked::Joined(population) | Asked::Mixed(population, _) => Some(population),
            Asked::Inline(_) | Asked::Custom { .. } => None,
        });
    match (table, &plan.keys) {
        (Some(population), _) => match population.unknown_id() {
            None => Ok(Entities::Table(Box::new(population))),
            Some(id) => {
                let what = format!("the table of journey `{}` has no entity {id}", journey.name);
                Err(plan.refuse("keys.file", what).into())
            }
        },
        (None, KeyDistribution::File { ids, .. }) => Ok(Entities::File(ids.clone())),
        (None, _) => {
            let what = format!(
                "`{}` uses {{entity_id}}, but none of its models joins a table that lists the ids; give them by `[keys]` \
                 with `distribution = \"file\"`",
                journey.name
            );
            Err(plan.refuse("journey", what).into())
        }
    }
}
