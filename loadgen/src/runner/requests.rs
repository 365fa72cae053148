//! Requests of a step, prepared for one target: their schedule, bodies and routes.
//!
//! In: a plan, a target, a load and a seed. Out: a step for `tierlab-load`. Knows nothing of repeats, or of the use of
//! samples.

use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::Control;
use crate::store::requests::RequestFacts;
use std::sync::Arc;
use tierlab_analysis::record::SentRequests;
use tierlab_load::by_goose::closed_loop::{ClosedLoop, Think};
use tierlab_load::driver::{Compress, Route, Step};
use tierlab_load::grpc::Connections;
use tierlab_load::inputs::{Demand, Entities, Prepared, joined_requests, other_requests};
use tierlab_load::keys::Population;
use tierlab_load::live::Watch;
use tierlab_load::payload::{self, Body, Protocol};
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::schedule::{Load, Schedule};

/// Number of bodies of a closed loop, built before it and sent repeatedly, because the number of its requests is a
/// result.
const CLOSED_LOOP_BODIES: usize = 1 << 18;
/// Number of entities in the bodies of a closed loop.
const CLOSED_LOOP_ENTITIES: usize = 1 << 20;

/// Requests of a step: a load of a model against a target.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// Plan with the other settings.
    pub plan: &'a Plan,
    /// Target of the requests.
    pub target: &'a Target,
    /// Entities per request, and requests per second.
    pub load: Load,
    /// Name of the requested model.
    pub model: &'a str,
    /// Seed of arrivals, entities and tensors.
    pub seed: u64,
}

impl Requests<'_> {
    /// Scheduled send times.
    pub fn schedule(&self) -> Arc<Schedule> {
        let (plan, rate) = (self.plan, self.load.rate);
        let schedule = Schedule::new(&plan.arrivals, rate, plan.warmup, plan.window, self.seed);
        Arc::new(schedule)
    }

    /// Prepares the step that sends them, with their statistics.
    ///
    /// # Errors
    /// Tensors that cannot be built, or no route to the server.
    pub fn step(&self, schedule: &Arc<Schedule>, watch: &Watch) -> Result<(Step, SentRequests), RunError> {
        let (plan, target, model) = (self.plan, self.target, self.model);
        let expected = target.expected(model, self.load.batch_size);
        let requests = schedule.due_us.len();
        let Prepared { mut bodies, sent } = self.prepare(requests)?;
        if plan.arrivals.is_replay() && plan.inputs.recorded.is_some() && bodies.len() < requests {
            let problem = "the bodies of a step exceed 128 MiB, so they cannot follow their recorded times; shorten it";
            return Err(plan.refuse("step_s", problem).into());
        }
        let limit = limit(plan, &expected, &bodies);
        if plan.sending.compress.is_some_and(Compress::requests) {
            payload::compress(&mut bodies);
        }
        let routes = target.control.servers().map(|server| route(plan, server, model));
        let step = Step {
            limit,
            expected: Arc::new(expected),
            routes: routes.collect::<Result<_, _>>()?,
            bodies: Arc::new(bodies),
            schedule: Arc::clone(schedule),
            users: plan.pool().unwrap_or(plan.max_in_flight),
            sending: plan.sending,
            timeout: plan.timeout,
            drain: plan.drain,
            watch: watch.clone(),
        };
        Ok((step, sent))
    }

    /// Prepares a closed loop of the same requests, with their statistics.
    ///
    /// # Errors
    /// Tensors that cannot be built.
    pub(super) fn closed_loop(
        &self,
        users: u32,
        think: Think,
        watch: &Watch,
    ) -> Result<(ClosedLoop, SentRequests), RunError> {
        let (plan, target, model, batch_size) = (self.plan, self.target, self.model, self.load.batch_size);
        let expected = target.expected(model, batch_size);
        let requests = (CLOSED_LOOP_ENTITIES / batch_size as usize).clamp(64, CLOSED_LOOP_BODIES);
        let Prepared { bodies, sent } = self.prepare(requests)?;
        let step = ClosedLoop {
            route: route(plan, &target.control, model)?,
            limit: limit(plan, &expected, &bodies),
            bodies: Arc::new(bodies),
            expected: Arc::new(expected),
            users: users as usize,
            think,
            seed: self.seed,
            warmup: plan.warmup,
            window: plan.window,
            timeout: plan.timeout,
            watch: watch.clone(),
        };
        Ok((step, sent))
    }

    /// Returns the population of its entities, and their number in each request.
    fn entities(&self) -> (Option<&Population>, usize) {
        let rows = self.load.batch_size as usize;
        match self.target.content_of(self.model) {
            Content::Joined(population) | Content::Mixed(population, _) => (Some(population), rows),
            Content::Custom { custom, ids } => (ids.as_ref(), if custom.needs_ids() { rows } else { 1 }),
            Content::Inline(_) => (None, 1),
        }
    }

    /// Describes the requests of a step that keeps them; `None` if it keeps none.
    pub(super) fn described(&self, step: &Step) -> Option<RequestFacts> {
        let Self { plan, seed, .. } = *self;
        if !step.sending.keep_requests {
            return None;
        }
        let (population, per_request) = self.entities();
        let ids = population.map(|population| population.draw(step.schedule.due_us.len() * per_request, seed));
        Some(RequestFacts {
            protocol: plan.protocol,
            ids: ids.iter().flatten().copied().step_by(per_request).collect(),
            population: population.cloned(),
            bodies: Arc::clone(&step.bodies),
            has_tensors: matches!(self.target.content_of(self.model), Content::Inline(_))
                && !plan.sending.compress.is_some_and(Compress::requests),
            window_us: step.schedule.window_start_us..step.schedule.window_end_us,
        })
    }

    /// Builds the bodies of `requests` requests, with their statistics.
    pub(super) fn prepare(&self, requests: usize) -> Result<Prepared, RunError> {
        let (plan, rows) = (self.plan, self.load.batch_size);
        let form = plan.form(self.model, self.target.control.model_version());
        let (population, per_request) = self.entities();
        let ids = population.map_or_else(Vec::new, |population| {
            population.draw(requests * per_request, self.seed)
        });
        let inputs = match self.target.content_of(self.model) {
            Content::Joined(population) => {
                let bodies: Vec<Body> = ids.chunks(per_request).map(|ids| population.body(ids, form)).collect();
                let sent = joined_requests(&bodies, rows, &plan.keys.to_string());
                return Ok(Prepared { bodies, sent });
            }
            Content::Custom { custom, .. } => {
                let shown = population.map(|population| ids.iter().map(|id| population.shown(*id)).collect());
                let shown: Vec<String> = shown.unwrap_or_default();
                let bodies = custom.bodies(requests, &shown, per_request, self.seed);
                let bodies = bodies.map_err(RunError::usage)?;
                let sent = other_requests(&bodies, plan.inputs.rows_per_request.unwrap_or(rows));
                return Ok(Prepared { bodies, sent });
            }
            Content::Inline(inputs) | Content::Mixed(_, inputs) => inputs,
        };
        let prepared = inputs.prepare(&Demand {
            form,
            rows,
            requests,
            seed: self.seed,
            entities: population.map(|population| Entities { population, ids: &ids }),
        });
        prepared.map_err(|problem| RunError::Usage(plan.inputs_error(self.model, &problem)))
    }
}

/// Returns the limit for the largest reply that any of the requests expects.
fn limit(plan: &Plan, expected: &Expected, bodies: &[Body]) -> Limit {
    let wanted = bodies.iter().filter_map(|body| body.wanted.as_ref());
    let all = wanted.map(|wanted| wanted.at(0).as_ref()).chain([expected]);
    let largest = all.max_by_key(|expected| expected.elements().unwrap_or(u64::MAX));
    Limit::of_replies(plan.reply_limit_bytes, largest.unwrap_or(expected).elements())
}

/// Returns the route to a server.
///
/// # Errors
/// A plan over gRPC and a server whose gRPC address is unknown or missing.
pub(super) fn route(plan: &Plan, server: &Control, model: &str) -> Result<Route, RunError> {
    match plan.protocol {
        Protocol::Http if plan.sending.http2 => {
            let (users, fixed) = (plan.max_in_flight, plan.sending.connections.fixed());
            let connections = Connections::http2(Arc::clone(&server.endpoint), users, fixed);
            let connections = Arc::new(connections.map_err(RunError::usage)?);
            Ok(Route::Http(server.route(model)?.with_http2(connections)))
        }
        Protocol::Http => Ok(Route::Http(server.route(model)?)),
        Protocol::Grpc => Ok(Route::Grpc(grpc_connections(plan, server)?)),
    }
}

/// Creates connections to a gRPC server, as many as the plan's users need.
///
/// # Errors
/// A server whose gRPC address is unknown or missing.
pub(super) fn grpc_connections(plan: &Plan, server: &Control) -> Result<Arc<Connections>, RunError> {
    let Some(endpoint) = &server.grpc else {
        let problem = "`protocol` = \"grpc\": gRPC address is missing: pass --grpc-url http://HOST:PORT or set `target.grpc_url` \
                    (tierlab-server reports `grpc_listen` if started with --grpc-listen)";
        return Err(RunError::about(&plan.file, problem));
    };
    let (users, fixed) = (plan.max_in_flight, plan.sending.connections.fixed());
    let connections = Connections::new(Arc::clone(endpoint), users, fixed);
    connections.map(Arc::new).map_err(RunError::usage)
}
