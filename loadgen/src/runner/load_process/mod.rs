//! Load process: receives orders over a link, sends its share, and returns its samples. Ends with the link, and so with
//! the run at the other end. `received`: the plan's files, for a run on another host, and secrets that such a run may use here.

mod received;

pub use received::Secrets;

use super::check_reply::check_reply;
use super::journeys::PreparedJourney;
use super::requests::Requests;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::Control;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_agents::clock::WallClock;
use tierlab_agents::link::{Link, LinkError, Orders, Output};
use tierlab_agents::message::MAX_TO_WORKER;
use tierlab_agents::options::AgentOptions;
use tierlab_agents::session::{self, ready};
use tierlab_analysis::record::Sample;
use tierlab_load::by_goose::journey::{self, Journey, JourneyResults, StepSample};
use tierlab_load::driver::{self, Finished};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::schedule::Schedule;
use tierlab_load::workers::message::{
    Done, Job, JourneyOrder, SAMPLES_AT_ONCE, Setup, StepDone, StepOrder, ToRun, ToWorker, WorkerReply,
};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Name that identifies this program's runs and agents to each other.
pub(crate) const PROGRAM: &str = "tierlab-loadgen";
/// Maximum wait of prepared users for the start of their step: the run's own limit for preparing, and a minute.
const START_LIMIT: Duration = Duration::from_secs(180);

/// Location of the plan's files.
#[derive(Debug, Clone, Copy)]
pub enum Files<'a> {
    /// At the paths in the plan: the run is on this host.
    Local,
    /// In a folder of this process until the run ends. Of this host's own, the run may use what is allowed.
    Received(&'a Secrets),
}

/// Serves the run on this host that started this process.
///
/// # Errors
/// See [`serve`].
pub async fn serve_parent() -> Result<(), RunError> {
    let at = Path::new("stdin and stdout, which must be pipes");
    let pipes = || -> io::Result<(Receiver, Sender)> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok((Receiver::from_owned_fd(stdin)?, Sender::from_owned_fd(stdout)?))
    };
    let (stdin, stdout) = pipes().map_err(RunError::io(at))?;
    let link = Link::new("the run".into(), true, tokio::io::join(stdin, stdout));
    serve(
        link.admitted(MAX_TO_WORKER),
        &WallClock::with_offset_ms(0),
        Files::Local,
    )
    .await
}

/// Serves runs of other hosts, one at a time, until interrupted.
///
/// # Errors
/// An address that is taken or must not be open, a token or a certificate that cannot be read.
pub async fn serve_remote(agent: &AgentOptions, allowed: &Secrets, interrupt: Interrupt) -> Result<(), RunError> {
    let (listener, door) = agent.listen(PROGRAM).await?;
    let work = async |link, clock: &_| serve(link, clock, Files::Received(allowed)).await;
    session::serve(listener, door, &agent.clock(), interrupt.raised(), work).await;
    Ok(())
}

/// Serves a run until its link ends. Errors are reported to the run.
///
/// # Errors
/// An invalid message, a server that does not answer, or a step that cannot be driven.
pub async fn serve(link: Link, clock: &WallClock, files: Files<'_>) -> Result<(), RunError> {
    let (input, mut output) = link.halves();
    let (mut orders, reading) = input.orders();
    let Err(error) = tokio::select! {
        // Notices the end of the link in the middle of a step.
        ended = reading => Err(ended.into()),
        result = work(&mut orders, &mut output, clock, files) => result,
    };
    if matches!(&error, RunError::Link(link) if link.is_unreachable()) {
        return Ok(());
    }
    match output.fail(error.to_string()).await {
        // The run reports it.
        Ok(()) if matches!(files, Files::Local) => Ok(()),
        _ => Err(error),
    }
}

async fn work(
    orders: &mut Orders<Job>,
    output: &mut Output,
    clock: &WallClock,
    files: Files<'_>,
) -> Result<Infallible, RunError> {
    let ToWorker::Job(Job::Setup(setup)) = orders.next().await? else {
        return Err(LinkError::Unexpected("Setup").into());
    };
    if setup.of > tierlab_agents::MAX_PROCESSES || setup.share >= setup.of {
        let problem = format!("invalid share {} of {}", setup.share, setup.of);
        return Err(RunError::Usage(problem));
    }
    let (plan, folder) = receive_plan(orders, &setup, files).await?;
    let mut cached: Option<(TargetSpec, Target)> = None;
    loop {
        let ToWorker::Job(Job::Order(order)) = orders.next().await? else {
            return Err(LinkError::Unexpected("Order").into());
        };
        let order = StepOrder::parse(&order)?;
        plan.check_load(&order.load)?;
        let target = match cached.take() {
            Some((spec, target)) if spec == order.target => target,
            _ => {
                let mut spec = order.target.clone();
                if let (Files::Received(allowed), Some(folder)) = (files, &folder) {
                    received::relocate(&mut spec, folder.path()).map_err(RunError::usage)?;
                    allowed.check(&spec).map_err(RunError::usage)?;
                }
                fetch_target(&plan, &spec).await?
            }
        };
        let (share, of) = (setup.share as usize, setup.of as usize);
        let mut late = Duration::ZERO;
        let interrupt = Interrupt::never();
        let finished = match &order.journey {
            Some(chosen) => {
                let step = journeys(&plan, &target, &order, chosen).await?.share(share, of);
                let start = report_ready(orders, output, clock, &mut late);
                let travelled = Box::pin(journey::run_from(step, start, &interrupt)).await?;
                travelled.map(journey_results)
            }
            None => {
                let requests = Requests {
                    plan: &plan,
                    target: &target,
                    load: order.load,
                    model: &plan.model,
                    seed: order.seed,
                };
                let (step, _) = requests.step(&requests.schedule(), &Watch::default())?;
                let start = report_ready(orders, output, clock, &mut late);
                let finished = Box::pin(driver::run_from(step.share(share, of), start, &interrupt)).await?;
                finished.map(request_results)
            }
        };
        if let Some((done, samples)) = finished {
            let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
            let done = WorkerReply::Done(Done { late_us, ..done });
            output.send(&ToRun::Reply(done)).await?;
            for chunk in samples.chunks(SAMPLES_AT_ONCE) {
                let chunk = WorkerReply::Samples(chunk.to_vec());
                output.send(&ToRun::Reply(chunk)).await?;
            }
        }
        cached = Some((order.target, target));
    }
}

/// Reports that users are up, and returns their start time.
async fn report_ready(
    orders: &mut Orders<Job>,
    output: &mut Output,
    clock: &WallClock,
    late: &mut Duration,
) -> Result<Instant, RunError> {
    let start = ready(orders, output, clock, START_LIMIT).await?;
    // The clock's zero is the ordered time, even if it has passed: lateness shows in the samples too.
    *late = start.late;
    Ok(start.at)
}

/// Runs all journeys of an order.
async fn journeys(plan: &Plan, target: &Target, order: &StepOrder, chosen: &JourneyOrder) -> Result<Journey, RunError> {
    let journey = plan.journeys.iter().find(|journey| journey.name == chosen.name);
    let Some(journey) = journey else {
        let problem = format!("journey `{}` is missing in its plan", chosen.name);
        return Err(RunError::Usage(problem));
    };
    let prepared = PreparedJourney::new(plan, target, journey).await?;
    let arrivals = Schedule::new(&plan.arrivals, order.load.rate, plan.warmup, plan.window, order.seed);
    Ok(prepared.journey(&Arc::new(arrivals), order.seed, &Watch::default()))
}

/// Reads the plan, with the folder of its files for as long as it is needed.
async fn receive_plan(
    orders: &mut Orders<Job>,
    setup: &Setup,
    files: Files<'_>,
) -> Result<(Plan, Option<TempDir>), RunError> {
    if let Files::Local = files {
        return Ok((Plan::parse(&setup.file, &setup.plan)?, None));
    }
    let folder = received::receive(orders, setup).await?;
    let file = received::local_path(folder.path(), &setup.file).map_err(RunError::usage)?;
    let plan = Plan::parse_sent(folder.path(), &file, &setup.plan)?;
    Ok((plan, Some(folder)))
}

/// Reads the model's metadata from a server. The run knows its tier and cache.
async fn fetch_target(plan: &Plan, spec: &TargetSpec) -> Result<Target, RunError> {
    let (target, _) = Target::fetch(plan, spec, Control::new(spec)?).await?;
    // The outputs with a row for each row are found by a request, as in the run itself; entities need none, and would
    // touch the cache.
    if matches!(target.content, Content::Inline(_) | Content::Mixed(..)) {
        check_reply(plan, &target, &plan.model).await?;
    }
    Ok(target)
}

/// Results of requests for the run, without their lateness, and all samples.
fn request_results(finished: Finished) -> (Done, Vec<Sample>) {
    let done = Done {
        observed: finished.observed,
        samples: finished.samples.len(),
        examples: finished.examples.into_iter().collect(),
        ..Done::default()
    };
    (done, finished.samples)
}

/// Results of journeys for the run, without their lateness, and all samples: of the whole journeys, then of each step.
fn journey_results(travelled: JourneyResults) -> (Done, Vec<Sample>) {
    let mut samples: Vec<Sample> = travelled.journeys.iter().map(|whole| whole.sample).collect();
    let whole_count = samples.len();
    let mut steps = Vec::new();
    for (step, examples) in travelled.steps.iter().zip(travelled.examples) {
        samples.extend(step.iter().map(StepSample::from_journey_due));
        steps.push(StepDone {
            samples: step.len(),
            example: examples.into_iter().next(),
        });
    }
    let done = Done {
        observed: travelled.observed,
        samples: whole_count,
        steps,
        ..Done::default()
    };
    (done, samples)
}
