//! One step: its requests built, sent by this process or several, and the server's counters around it.
//!
//! In: a plan, a target, a load and a seed. Out: samples. Knows nothing of repeats, or of the use of samples.

use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::Control;
use crate::server::delta::{self, Between, Reading};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::{AgentStart, SentRequests, ServerDelta};
use tierlab_instrument::machine::watch::{MachineWatch, Watched};
use tierlab_load::by_goose::closed_loop::{ClosedLoop, Think};
use tierlab_load::driver::{self, Finished, Route, Step};
use tierlab_load::grpc::{self, Connections};
use tierlab_load::inputs::{Entities, Prepared, Wish, joined_requests, other_requests};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::load::Load;
use tierlab_load::payload::Body;
use tierlab_load::reply::{Expected, Limit};
use tierlab_load::schedule::Schedule;
use tierlab_load::wire::Protocol;
use tierlab_load::workers::message::StepOrder;
use tierlab_load::workers::{Agents, Workers};
use tokio::sync::Barrier;

/// Time between the last part's readiness and the common zero.
const PART_LEAD: Duration = Duration::from_millis(10);

/// Maximum requests built to describe those of several processes.
const DESCRIBED_REQUESTS: usize = 10_000;
/// Number of bodies of a closed loop, built before it and sent repeatedly, because the number of its requests is a
/// result.
const CLOSED_LOOP_BODIES: usize = 1 << 18;
/// Number of entities in the bodies of a closed loop.
const CLOSED_LOOP_ENTITIES: usize = 1 << 20;

/// Senders of a run's requests.
#[derive(Debug)]
pub struct Senders {
    /// Several processes on this host, or agents.
    pub workers: Option<Workers>,
}

impl Senders {
    /// Connects to the agents, or starts `workers` processes if there is more than one.
    ///
    /// # Errors
    /// A process cannot be started, or an agent is not reached.
    pub async fn new(plan: &Plan, workers: u32, agents: Option<Agents>) -> Result<Self, RunError> {
        let workers = match (agents, workers) {
            (Some(agents), _) => {
                let text = plan.text_elsewhere().map_err(RunError::io(&plan.file))?;
                Some(Workers::connect(agents, text, plan.step_limit()).await?)
            }
            (None, 0 | 1) => None,
            (None, more) => Some(Workers::start(more, plan.text_here(), plan.step_limit()).await?),
        };
        Ok(Self { workers })
    }

    /// Returns the option that makes several processes send, if one was given.
    #[must_use]
    pub(super) fn several(&self) -> Option<&'static str> {
        let workers = self.workers.as_ref()?;
        Some(if workers.are_agents() { "--agents" } else { "--workers" })
    }

    /// Describes the senders for the result.
    #[must_use]
    pub fn note(workers: u32, agents: usize) -> String {
        match workers {
            _ if agents > 0 => format!("load generator (it conducts; {agents} agents send)"),
            0 | 1 => "load generator".into(),
            more => format!("load generator ({more} processes)"),
        }
    }
}

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
    #[must_use]
    pub fn schedule(&self) -> Arc<Schedule> {
        let plan = self.plan;
        Arc::new(Schedule::new(
            &plan.arrivals,
            self.load.rate,
            plan.warmup,
            plan.window,
            self.seed,
        ))
    }

    /// Prepares the step that sends them.
    ///
    /// # Errors
    /// Tensors that cannot be built, or no route to the server.
    pub fn step(&self, schedule: &Arc<Schedule>, watch: &Watch) -> Result<PreparedStep, RunError> {
        let Self {
            plan,
            target,
            load,
            model,
            ..
        } = *self;
        let expected = target.expected(model, load.batch_size);
        let prepared = self.prepare(schedule.due_us.len())?;
        let step = Step {
            limit: limit(plan, &expected, &prepared.bodies),
            expected: Arc::new(expected),
            routes: routes(plan, target, model)?,
            bodies: Arc::new(self.versioned(prepared.bodies)),
            schedule: Arc::clone(schedule),
            users: plan.max_in_flight,
            timeout: plan.timeout,
            drain: plan.drain,
            watch: watch.clone(),
        };
        Ok(PreparedStep {
            step,
            sent: prepared.sent,
        })
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
        let Self {
            plan,
            target,
            load,
            model,
            seed,
            ..
        } = *self;
        let expected = target.expected(model, load.batch_size);
        let bodies = (CLOSED_LOOP_ENTITIES / load.batch_size as usize).clamp(64, CLOSED_LOOP_BODIES);
        let prepared = self.prepare(bodies)?;
        let step = ClosedLoop {
            route: route(plan, target, model)?,
            limit: limit(plan, &expected, &prepared.bodies),
            bodies: Arc::new(self.versioned(prepared.bodies)),
            expected: Arc::new(expected),
            users: users as usize,
            think,
            seed,
            warmup: plan.warmup,
            window: plan.window,
            timeout: plan.timeout,
            watch: watch.clone(),
        };
        Ok((step, prepared.sent))
    }

    /// Adds the model's version to messages over gRPC.
    fn versioned(&self, mut bodies: Vec<Body>) -> Vec<Body> {
        if let (Protocol::Grpc, Some(version)) = (self.plan.protocol, self.target.control.model_version()) {
            for body in &mut bodies {
                body.bytes = grpc::with_model_version(&body.bytes, version);
            }
        }
        bodies
    }

    /// Builds the bodies of `requests` requests, with their statistics.
    fn prepare(&self, requests: usize) -> Result<Prepared, RunError> {
        let (plan, rows) = (self.plan, self.load.batch_size);
        let form = plan.form(self.model);
        let per_request = rows as usize;
        let wish = Wish {
            form,
            rows,
            requests,
            seed: self.seed,
            entities: None,
        };
        let prepared = match self.target.content_of(self.model) {
            Content::Joined(population) => {
                let ids = population.draw(requests * per_request, self.seed);
                let bodies: Vec<Body> = ids.chunks(per_request).map(|ids| population.body(ids, form)).collect();
                let sent = joined_requests(&bodies, rows, &plan.keys.to_string());
                return Ok(Prepared { bodies, sent });
            }
            Content::Custom { custom, ids } => {
                let per_request = if custom.wants_ids() { per_request } else { 1 };
                let drawn = ids.iter().flat_map(|ids| {
                    let drawn = ids.draw(requests * per_request, self.seed);
                    drawn.into_iter().map(move |id| ids.shown(id))
                });
                let bodies = custom.bodies(requests, &drawn.collect::<Vec<_>>(), per_request);
                let bodies = bodies.map_err(RunError::Usage)?;
                let sent = other_requests(&bodies, plan.inputs.rows_per_request.unwrap_or(rows));
                return Ok(Prepared { bodies, sent });
            }
            Content::Inline(inputs) => inputs.prepare(&wish),
            Content::Mixed(population, inputs) => {
                let ids = population.draw(requests * per_request, self.seed);
                inputs.prepare(&Wish {
                    entities: Some(Entities { population, ids: &ids }),
                    ..wish
                })
            }
        };
        prepared.map_err(|what| RunError::Usage(plan.wrong_inputs(self.model, &what)))
    }
}

/// Step prepared for the driver.
#[derive(Debug)]
pub struct PreparedStep {
    /// Step to run.
    pub step: Step,
    /// Statistics of its requests.
    pub sent: SentRequests,
}

/// Results of a step.
#[derive(Debug)]
pub struct Measured {
    /// Samples, and the pacer's observations.
    pub finished: Finished,
    /// Schedule that the samples belong to.
    pub schedule: Arc<Schedule>,
    /// Statistics of its requests.
    pub sent: SentRequests,
    /// Reports of the server and of the machine; empty for a part of a mix.
    pub beside: Beside,
    /// Start uncertainty of its agents; empty without agents.
    pub agents: Vec<AgentStart>,
}

/// Reports of the server and of the machine around a step.
#[derive(Debug, Default)]
pub struct Beside {
    /// Server counters; absent if the server reports none, or did not answer before and after.
    pub server: Option<ServerDelta>,
    /// True if the server should have reported its counters and did not.
    pub(super) is_unread: bool,
    /// True if there was no good reply.
    pub(super) is_unanswered: bool,
    /// Activity of the machine.
    pub(super) watched: Option<Watched>,
}

/// Observation of the server and of the machine around a step.
pub(super) struct Around<'a> {
    plan: &'a Plan,
    control: &'a Control,
    models: &'a [&'a str],
    machine: Option<MachineWatch>,
    before: Option<Reading>,
}

impl<'a> Around<'a> {
    /// Watches the machine, from before the step's requests are prepared on.
    pub(super) fn watch(plan: &'a Plan, control: &'a Control, models: &'a [&'a str]) -> Self {
        Self {
            plan,
            control,
            models,
            machine: MachineWatch::begin(control.addresses(), plan.step_limit()),
            before: None,
        }
    }

    /// Reads the server's reports just before the step.
    pub(super) async fn begin(&mut self) {
        self.before = self.control.read(self.models).await.ok();
    }

    /// Reads the server's reports after the step, which sent these requests.
    pub(super) async fn end(self, requests: delta::Requests, window_began: SystemTime) -> Beside {
        let after = self.control.read(self.models).await.ok();
        let (server, is_unread) = match (&self.before, &after) {
            (Some(before), Some(after)) => {
                let between = Between {
                    before,
                    after,
                    models: self.models,
                    requests,
                };
                (between.delta(), false)
            }
            _ => (None, self.control.tells()),
        };
        Beside {
            server,
            is_unread,
            is_unanswered: requests.answered == 0,
            watched: self
                .machine
                .and_then(|machine| machine.end(window_began, self.plan.window)),
        }
    }
}

/// Measures one step against one target, sent by this process; `None` if interrupted.
///
/// # Errors
/// The step could not be driven.
pub async fn measure(requests: &Requests<'_>, interrupt: &Interrupt) -> Result<Option<Measured>, RunError> {
    measure_with(None, requests, &Watch::default(), interrupt).await
}

/// Measures a step sent by `workers` if there are any.
pub(super) async fn measure_with(
    workers: Option<&mut Workers>,
    requests: &Requests<'_>,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, RunError> {
    let Requests { target, seed, .. } = *requests;
    let models = [requests.model];
    let mut around = Around::watch(requests.plan, &target.control, &models);
    let schedule = requests.schedule();
    let (step, sent) = match &workers {
        None => {
            let prepared = requests.step(&schedule, watch)?;
            (Some(prepared.step), prepared.sent)
        }
        // Each process builds its own requests; their statistics are the same.
        Some(_) => (
            None,
            requests.prepare(schedule.due_us.len().min(DESCRIBED_REQUESTS))?.sent,
        ),
    };
    around.begin().await;
    let sent_by = match (step, workers) {
        (Some(step), _) => {
            let finished = driver::run(step, interrupt).await?;
            finished.map(|finished| (finished, Vec::new()))
        }
        (None, None) => None,
        (None, Some(workers)) => {
            watch.sent_by(workers.size());
            let order = StepOrder {
                target: target.control.spec().clone(),
                load: requests.load,
                seed,
                journey: None,
            };
            tokio::select! {
                sent = workers.run(&order, &schedule) => {
                    let sent = sent?;
                    Some((sent.finished, sent.starts))
                }
                () = interrupt.raised() => None,
            }
        }
    };
    let Some((finished, agents)) = sent_by else {
        return Ok(None);
    };
    let counted = delta::Requests::of(finished.samples.iter());
    let beside = around.end(counted, finished.window_began).await;
    Ok(Some(Measured {
        finished,
        schedule,
        sent,
        beside,
        agents,
    }))
}

/// Measures a part of a mix against one target, sent by this process, its clock started with those of the others;
/// `None` if interrupted.
pub(super) async fn measure_part(
    requests: &Requests<'_>,
    together: &Barrier,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, RunError> {
    let schedule = requests.schedule();
    let PreparedStep { step, sent } = requests.step(&schedule, watch)?;
    let start = async {
        together.wait().await;
        Ok::<_, RunError>(Instant::now() + PART_LEAD)
    };
    let finished = driver::run_from(step, start, interrupt).await?;
    Ok(finished.map(|finished| Measured {
        finished,
        schedule,
        sent,
        beside: Beside::default(),
        agents: Vec::new(),
    }))
}

/// Returns the limit for the largest reply that any of the requests expects.
fn limit(plan: &Plan, expected: &Expected, bodies: &[Body]) -> Limit {
    let wanted = bodies.iter().filter_map(|body| body.wanted.as_ref());
    let all = wanted.map(|wanted| wanted.at(0).as_ref()).chain([expected]);
    let largest = all.max_by_key(|expected| expected.elements().unwrap_or(u64::MAX));
    Limit::of_replies(plan.reply_limit_bytes, largest.unwrap_or(expected))
}

/// Returns the routes to a target's servers.
///
/// # Errors
/// Those of [`route`].
fn routes(plan: &Plan, target: &Target, model: &str) -> Result<Vec<Route>, RunError> {
    let servers = target.control.servers();
    servers.map(|server| route_to(plan, server, model)).collect()
}

/// Returns the route to a target's server, the first of several.
///
/// # Errors
/// A plan over gRPC and a target whose gRPC address is unknown or missing.
pub(super) fn route(plan: &Plan, target: &Target, model: &str) -> Result<Route, RunError> {
    route_to(plan, &target.control, model)
}

fn route_to(plan: &Plan, server: &Control, model: &str) -> Result<Route, RunError> {
    match plan.protocol {
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
        return Err(RunError::Usage(format!(
            "{}: `protocol` = \"grpc\": say where the server speaks it, by --grpc-url http://HOST:PORT or `target.grpc_url` \
             (tierlab-server says `grpc_listen` when it is started with --grpc-listen)",
            plan.file.display()
        )));
    };
    let connections = Connections::new(Arc::clone(endpoint), plan.max_in_flight).map_err(RunError::Usage)?;
    Ok(Arc::new(connections))
}
