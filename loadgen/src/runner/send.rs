//! One step: its requests made, sent by this process or several, and the server's counters around it.
//!
//! In: a plan, a target, a load and a seed. Out: samples. Knows nothing of repeats, nor of what becomes of samples.

use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::delta::{delta, delta_of};
use crate::server::scrape::Scrape;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_analysis::record::ServerDelta;
use tierlab_load::closed_loop::{ClosedLoop, Think};
use tierlab_load::driver::{self, DriverError, Finished, Route, Step};
use tierlab_load::grpc::Connections;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::load::Load;
use tierlab_load::payload::{self, Body};
use tierlab_load::reply::Limit;
use tierlab_load::schedule::Schedule;
use tierlab_load::wire::Protocol;
use tierlab_load::workers::message::StepOrder;
use tierlab_load::workers::{PlanText, Workers};
use tokio::sync::Barrier;

/// Between the last part's readiness and the common zero.
const PART_LEAD: Duration = Duration::from_millis(10);

/// How many requests a closed loop asks for is a result: so many are made before it, and sent over and over.
const CLOSED_LOOP_BODIES: usize = 1 << 18;
/// And entities in them.
const CLOSED_LOOP_ENTITIES: usize = 1 << 20;

/// Who sends the requests of a run.
#[derive(Debug)]
pub struct Senders {
    /// Processes on this host, where it is more than this one.
    pub workers: Option<Workers>,
    /// Which of several hosts this is, whose runs are merged: each has arrivals of its own.
    pub host: u32,
    /// Whether no other host measures the same steps at the same time.
    pub alone: bool,
}

impl Senders {
    /// This process, or `workers` of them, on the only host.
    ///
    /// # Errors
    /// A process cannot be started.
    pub async fn new(plan: &Plan, workers: u32, host: u32) -> Result<Self, RunError> {
        let text = PlanText {
            file: &plan.file,
            text: &plan.text,
        };
        let workers = match workers {
            0 | 1 => None,
            more => Some(Workers::start(more, &text, plan.step_limit()).await?),
        };
        Ok(Self {
            workers,
            host,
            alone: true,
        })
    }

    /// In words, for the result.
    #[must_use]
    pub fn note(workers: u32) -> String {
        match workers {
            0 | 1 => "load generator".into(),
            more => format!("load generator ({more} processes)"),
        }
    }
}

/// The requests of a step: which load, of which model, against which target.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// The plan that says the rest.
    pub plan: &'a Plan,
    /// Where they are sent.
    pub target: &'a Target,
    /// How many entities each asks for, and how many are sent a second.
    pub load: Load,
    /// The model that they ask for.
    pub model: &'a str,
    /// What arrivals, entities and tensors derive from.
    pub seed: u64,
}

impl Requests<'_> {
    /// When they are due.
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

    /// The step that sends them.
    ///
    /// # Errors
    /// Tensors that cannot be made, or no way to the server.
    pub fn step(&self, schedule: &Arc<Schedule>, watch: &Watch) -> Result<Step, RunError> {
        let Self {
            plan,
            target,
            load,
            model,
            ..
        } = *self;
        let expected = target.expected(model, load.batch_size);
        Ok(Step {
            limit: Limit::of_replies(plan.reply_limit_bytes, &expected),
            expected: Arc::new(expected),
            route: route(plan, target, model)?,
            bodies: Arc::new(self.bodies(schedule.due_us.len())?),
            schedule: Arc::clone(schedule),
            users: plan.max_in_flight,
            timeout: plan.timeout,
            drain: plan.drain,
            watch: watch.clone(),
        })
    }

    /// The same requests sent by users who wait for their replies.
    ///
    /// # Errors
    /// Tensors that cannot be made.
    pub(super) fn closed_loop(&self, users: u32, think: Think, watch: &Watch) -> Result<ClosedLoop, RunError> {
        let Self {
            plan,
            target,
            load,
            model,
            seed,
        } = *self;
        let expected = target.expected(model, load.batch_size);
        let bodies = (CLOSED_LOOP_ENTITIES / load.batch_size as usize).clamp(64, CLOSED_LOOP_BODIES);
        Ok(ClosedLoop {
            url: target.control.infer_url(model),
            bodies: Arc::new(self.bodies(bodies)?),
            limit: Limit::of_replies(plan.reply_limit_bytes, &expected),
            expected: Arc::new(expected),
            users: users as usize,
            think,
            seed,
            warmup: plan.warmup,
            window: plan.window,
            timeout: plan.timeout,
            watch: watch.clone(),
        })
    }

    fn bodies(&self, requests: usize) -> Result<Vec<Body>, RunError> {
        let form = self.plan.form(self.model);
        match self.target.content_of(self.model) {
            Content::Joined(population) => {
                let per_request = self.load.batch_size as usize;
                let ids = population.draw(requests * per_request, self.seed);
                Ok(ids.chunks(per_request).map(|ids| payload::joined(ids, form)).collect())
            }
            Content::Inline(specs) => {
                payload::inline(specs, self.load.batch_size, form, self.seed).map_err(RunError::Usage)
            }
        }
    }
}

/// What a step leaves.
#[derive(Debug)]
pub struct Measured {
    /// Samples, and what the pacer saw.
    pub finished: Finished,
    /// What the samples are held against.
    pub schedule: Arc<Schedule>,
    /// The server's counters; absent where the server did not answer before and after.
    pub server: Option<ServerDelta>,
}

/// One step against one target, sent by this process; `None` when interrupted.
///
/// # Errors
/// The step could not be driven.
pub async fn measure(requests: &Requests<'_>, interrupt: &Interrupt) -> Result<Option<Measured>, RunError> {
    measure_with(None, requests, &Watch::default(), interrupt).await
}

/// The same, sent by `workers` where there are any.
pub(super) async fn measure_with(
    workers: Option<&mut Workers>,
    requests: &Requests<'_>,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, RunError> {
    let Requests {
        plan,
        target,
        load,
        seed,
        ..
    } = *requests;
    let schedule = requests.schedule();
    let before = target.control.scrape().await.ok();
    let finished = match workers {
        None => driver::run(requests.step(&schedule, watch)?, interrupt).await?,
        Some(workers) => {
            watch.sent_by(workers.size());
            let order = StepOrder {
                url: target.control.base().to_owned(),
                grpc: target.grpc.as_ref().map(ToString::to_string),
                load,
                seed,
            };
            tokio::select! {
                finished = workers.run(&order) => Some(finished?),
                () = interrupt.raised() => None,
            }
        }
    };
    let Some(finished) = finished else {
        return Ok(None);
    };
    let after = target.control.scrape().await.ok();
    let server = before
        .zip(after)
        .map(|(before, after)| delta(&before, &after, &plan.model));
    Ok(Some(Measured {
        finished,
        schedule,
        server,
    }))
}

/// What the server counted for some models since `before`; `None` where it did not answer then or does not now.
pub(super) async fn delta_around(before: Option<Scrape>, target: &Target, models: &[&str]) -> Option<ServerDelta> {
    let after = target.control.scrape().await.ok();
    before
        .zip(after)
        .map(|(before, after)| delta_of(&before, &after, models))
}

/// A part of a mix against one target, sent by this process, its clock started with those of the others; `None` when
/// interrupted.
pub(super) async fn measure_part(
    requests: &Requests<'_>,
    together: &Barrier,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<(Finished, Arc<Schedule>)>, RunError> {
    let schedule = requests.schedule();
    let step = requests.step(&schedule, watch)?;
    let start = async {
        together.wait().await;
        Ok::<_, DriverError>(Instant::now() + PART_LEAD)
    };
    let finished = driver::run_from(step, start, interrupt).await?;
    Ok(finished.map(|finished| (finished, schedule)))
}

/// The way to a target's server.
///
/// # Errors
/// A plan over gRPC and a target whose gRPC address is not known, or is none.
pub(super) fn route(plan: &Plan, target: &Target, model: &str) -> Result<Route, RunError> {
    match (plan.protocol, &target.grpc) {
        (Protocol::Http, _) => Ok(Route::Http(target.control.infer_url(model))),
        (Protocol::Grpc, Some(url)) => {
            let connections = Connections::new(url, plan.max_in_flight).map_err(RunError::Usage)?;
            Ok(Route::Grpc(Arc::new(connections)))
        }
        (Protocol::Grpc, None) => Err(RunError::Usage(format!(
            "{}: `protocol` = \"grpc\": say where the server speaks it, by --grpc-url http://HOST:PORT (the server says \
             `grpc_listen` when it is started with --grpc-listen)",
            plan.file.display()
        ))),
    }
}
