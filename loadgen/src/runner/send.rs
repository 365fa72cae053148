//! One step: its requests made, sent by this process or several, and the server's counters around it.
//!
//! In: a plan, a target, a load and a seed. Out: samples. Knows nothing of repeats, nor of what becomes of samples.

use super::{Content, Target};
use crate::driver::{self, DriverError, Finished, Route, Step};
use crate::error::RunError;
use crate::grpc::Connections;
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::payload::{self, Body};
use crate::plan::{Load, Plan, Protocol};
use crate::reply::Limit;
use crate::schedule::Schedule;
use crate::scrape;
use crate::workers::Crew;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

/// Between the last part's readiness and the common zero.
const PART_LEAD: Duration = Duration::from_millis(10);

/// Who sends the requests of a run.
#[derive(Debug)]
pub struct Senders {
    /// Processes on this host, where it is more than this one.
    pub crew: Option<Crew>,
    /// Which of several hosts this is, whose runs are merged: each has arrivals of its own.
    pub host: u32,
}

impl Senders {
    /// This process, or `workers` of them.
    ///
    /// # Errors
    /// A process cannot be started.
    pub async fn new(plan: &Plan, workers: u32, host: u32) -> Result<Self, RunError> {
        let crew = match workers {
            0 | 1 => None,
            more => Some(Crew::start(plan, more).await?),
        };
        Ok(Self { crew, host })
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

/// What a step leaves: samples, the schedule that they are held against, and the server's counters, absent where the
/// server did not answer before and after.
pub type Measured = (Finished, Arc<Schedule>, Option<crate::record::ServerDelta>);

/// One step against one target, sent by this process; `None` when interrupted.
///
/// # Errors
/// The step could not be driven.
pub async fn measure(
    plan: &Plan,
    target: &Target,
    load: Load,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, RunError> {
    let nobody = Watch::default();
    measure_with(None, plan, (target, load, seed), &nobody, interrupt).await
}

/// The same, sent by `crew` where there is one.
pub(super) async fn measure_with(
    crew: Option<&mut Crew>,
    plan: &Plan,
    (target, load, seed): (&Target, Load, u64),
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<Measured>, RunError> {
    let schedule = Arc::new(Schedule::new(&plan.arrivals, load.rate, plan.warmup, plan.window, seed));
    let before = target.control.scrape().await.ok();
    let finished = match crew {
        None => {
            let step = Step {
                watch: watch.clone(),
                ..step(plan, target, load, (&schedule, seed))?
            };
            driver::run(step, interrupt).await?
        }
        Some(crew) => {
            watch.sent_by(crew.size());
            tokio::select! {
                finished = crew.run(target, load, seed) => Some(finished?),
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
        .map(|(before, after)| scrape::delta(&before, &after, &plan.model));
    Ok(Some((finished, schedule, server)))
}

/// A part of a mix against one target, sent by this process, its clock started with those of the others; `None` when
/// interrupted.
pub(super) async fn measure_part(
    plan: &Plan,
    target: &Target,
    (load, model, seed): (Load, &str, u64),
    together: &Barrier,
    watch: &Watch,
    interrupt: &Interrupt,
) -> Result<Option<(Finished, Arc<Schedule>)>, RunError> {
    let schedule = Arc::new(Schedule::new(&plan.arrivals, load.rate, plan.warmup, plan.window, seed));
    let step = Step {
        watch: watch.clone(),
        ..step_of(plan, target, (load, model), (&schedule, seed))?
    };
    let start = async {
        together.wait().await;
        Ok::<_, DriverError>(Instant::now() + PART_LEAD)
    };
    let finished = driver::run_from(step, start, interrupt).await?;
    Ok(finished.map(|finished| (finished, schedule)))
}

/// The requests of a step.
///
/// # Errors
/// Tensors that cannot be made.
pub fn step(plan: &Plan, target: &Target, load: Load, when: (&Arc<Schedule>, u64)) -> Result<Step, RunError> {
    step_of(plan, target, (load, &plan.model), when)
}

fn step_of(
    plan: &Plan,
    target: &Target,
    (load, model): (Load, &str),
    (schedule, seed): (&Arc<Schedule>, u64),
) -> Result<Step, RunError> {
    let expected = target.expected(model, load.batch_size);
    Ok(Step {
        limit: Limit::of_replies(plan.reply_limit_bytes, &expected),
        expected: Arc::new(expected),
        route: route(plan, target, model)?,
        bodies: Arc::new(bodies(
            (plan, model),
            target.content_of(model),
            load,
            (schedule.due_us.len(), seed),
        )?),
        schedule: Arc::clone(schedule),
        users: plan.max_in_flight,
        timeout: plan.timeout,
        drain: plan.drain,
        watch: Watch::default(),
    })
}

/// The way to a target's server.
///
/// # Errors
/// A plan over gRPC and a target whose gRPC address is not known, or is none.
pub fn route(plan: &Plan, target: &Target, model: &str) -> Result<Route, RunError> {
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

fn bodies(
    (plan, model): (&Plan, &str),
    content: &Content,
    load: Load,
    (requests, seed): (usize, u64),
) -> Result<Vec<Body>, RunError> {
    match content {
        Content::Joined(population) => {
            let per_request = load.batch_size as usize;
            let ids = population.draw(requests * per_request, seed);
            Ok(ids
                .chunks(per_request)
                .map(|ids| payload::joined(ids, plan.form(model)))
                .collect())
        }
        Content::Inline(specs) => {
            payload::inline(specs, load.batch_size, plan.form(model), seed).map_err(RunError::Usage)
        }
    }
}
