//! Load process: receives orders over a link, sends its share, and returns its samples. Ends with the link, and so with
//! the run at the other end. `sent`: the plan's files, for a run on another host, and secrets that such a run may use here.

mod sent;

pub use sent::Allowed;

use super::check_reply::check_reply;
use super::journeys::Prepared;
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
    Done, Job, JourneyOrder, Reply, SAMPLES_AT_ONCE, Setup, StepDone, StepOrder, ToRun, ToWorker,
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
    Here,
    /// In a folder of this process until the run ends. Of this host's own, the run may use what is allowed.
    Sent(&'a Allowed),
}

/// Serves the run on this host that started this process.
///
/// # Errors
/// See [`serve`].
pub async fn serve_here() -> Result<(), RunError> {
    let at = Path::new("stdin and stdout, which must be pipes");
    let pipes = || -> io::Result<(Receiver, Sender)> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok((Receiver::from_owned_fd(stdin)?, Sender::from_owned_fd(stdout)?))
    };
    let (stdin, stdout) = pipes().map_err(RunError::io(at))?;
    let link = Link::new("the run".into(), true, tokio::io::join(stdin, stdout));
    serve(link.admitted(MAX_TO_WORKER), &WallClock::with_offset_ms(0), Files::Here).await
}

/// Serves runs of other hosts, one at a time, until interrupted.
///
/// # Errors
/// An address that is taken or must not be open, a token or a certificate that cannot be read.
pub async fn serve_others(agent: &AgentOptions, allowed: &Allowed, interrupt: Interrupt) -> Result<(), RunError> {
    let (listener, door) = agent.listen(PROGRAM).await?;
    let work = async |link, clock: &_| serve(link, clock, Files::Sent(allowed)).await;
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
    let worked = tokio::select! {
        // Notices the end of the link in the middle of a step.
        ended = reading => Err(ended.into()),
        worked = work(&mut orders, &mut output, clock, files) => worked,
    };
    let error = match worked {
        Ok(never) => match never {},
        Err(RunError::Link(error)) if error.is_unreachable() => return Ok(()),
        Err(error) => error,
    };
    match output.fail(error.to_string()).await {
        // The run reports it.
        Ok(()) if matches!(files, Files::Here) => Ok(()),
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
        let what = format!("invalid share {} of {}", setup.share, setup.of);
        return Err(RunError::Usage(what));
    }
    let (plan, folder) = plan_of(orders, &setup, files).await?;
    let mut known: Option<(TargetSpec, Target)> = None;
    loop {
        let ToWorker::Job(Job::Order(order)) = orders.next().await? else {
            return Err(LinkError::Unexpected("Order").into());
        };
        let order = StepOrder::parse(&order)?;
        plan.check_load(&order.load)?;
        let target = match known.take() {
            Some((spec, target)) if spec == order.target => target,
            _ => {
                let mut spec = order.target.clone();
                if let (Files::Sent(allowed), Some(folder)) = (files, &folder) {
                    sent::relocate(&mut spec, folder.path()).map_err(RunError::Usage)?;
                    allowed.check(&spec).map_err(RunError::Usage)?;
                }
                ask(&plan, &spec).await?
            }
        };
        let (share, of) = (setup.share as usize, setup.of as usize);
        let mut late = Duration::ZERO;
        let interrupt = Interrupt::never();
        let finished = match &order.journey {
            Some(wanted) => {
                let step = journeys(&plan, &target, &order, wanted).await?.share(share, of);
                let up = up(orders, output, clock, &mut late);
                let travelled = Box::pin(journey::run_from(step, up, &interrupt)).await?;
                travelled.map(of_journeys)
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
                let up = up(orders, output, clock, &mut late);
                let finished = Box::pin(driver::run_from(step.share(share, of), up, &interrupt)).await?;
                finished.map(of_requests)
            }
        };
        if let Some((done, samples)) = finished {
            let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
            output
                .send(&ToRun::Reply(Reply::Done(Done { late_us, ..done })))
                .await?;
            for some in samples.chunks(SAMPLES_AT_ONCE) {
                output.send(&Reply::samples(some)).await?;
            }
        }
        known = Some((order.target, target));
    }
}

/// Reports that users are up, and returns their start time.
async fn up(
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
async fn journeys(plan: &Plan, target: &Target, order: &StepOrder, wanted: &JourneyOrder) -> Result<Journey, RunError> {
    let journey = plan.journeys.iter().find(|journey| journey.name == wanted.name);
    let Some(journey) = journey else {
        let what = format!("journey `{}` is missing in its plan", wanted.name);
        return Err(RunError::Usage(what));
    };
    let prepared = Prepared::of(plan, target, journey).await?;
    let arrivals = Schedule::new(&plan.arrivals, order.load.rate, plan.warmup, plan.window, order.seed);
    Ok(prepared.journey(&Arc::new(arrivals), order.seed, &Watch::default()))
}

/// Reads the plan, with the folder of its files for as long as it is needed.
async fn plan_of(
    orders: &mut Orders<Job>,
    setup: &Setup,
    files: Files<'_>,
) -> Result<(Plan, Option<TempDir>), RunError> {
    if let Files::Here = files {
        return Ok((Plan::parse(&setup.file, &setup.plan)?, None));
    }
    let folder = sent::receive(orders, setup).await?;
    let file = sent::place(folder.path(), &setup.file).map_err(RunError::Usage)?;
    let plan = Plan::parse_sent(folder.path(), &file, &setup.plan)?;
    Ok((plan, Some(folder)))
}

/// Reads the model's metadata from a server. The run knows its tier and cache.
async fn ask(plan: &Plan, spec: &TargetSpec) -> Result<Target, RunError> {
    let (target, _) = Target::ask(plan, spec, Control::of(spec)?).await?;
    // The outputs with a row for each row are found by a request, as in the run itself; entities need none, and would
    // touch the cache.
    if matches!(target.content, Content::Inline(_) | Content::Mixed(..)) {
        check_reply(plan, &target, &plan.model).await?;
    }
    Ok(target)
}

/// Results of requests for the run, without their lateness, and all samples.
fn of_requests(finished: Finished) -> (Done, Vec<Sample>) {
    let done = Done {
        observed: finished.observed,
        samples: finished.samples.len(),
        examples: finished.examples.into_iter().collect(),
        ..Done::default()
    };
    (done, finished.samples)
}

/// Results of journeys for the run, without their lateness, and all samples: of the whole journeys, then of each step.
fn of_journeys(travelled: JourneyResults) -> (Done, Vec<Sample>) {
    let mut samples: Vec<Sample> = travelled.journeys.iter().map(|whole| whole.sample).collect();
    let of_whole = samples.len();
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
        samples: of_whole,
        steps,
        ..Done::default()
    };
    (done, samples)
}
