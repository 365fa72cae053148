//! Load process: receives orders over a link, sends its share, and returns its samples. Ends with the link, and so with
//! the run at the other end. `sent_files`: the plan's files, for a run on another host; [`allowed`]: secrets that such
//! a run may use here.

pub mod allowed;
mod sent_files;

use super::check_reply::check_reply;
use super::journey_requests::Prepared;
use super::send::Requests;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::{Plan, PlanError};
use crate::server::control::Control;
use allowed::Allowed;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_analysis::record::{Failure, Sample};
use tierlab_load::by_goose::journey::{self, Journey, StepSample, Travelled};
use tierlab_load::driver::{self, DriverError, Finished};
use tierlab_load::endpoint::TargetSpec;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::Schedule;
use tierlab_load::workers;
use tierlab_load::workers::clock::WallClock;
use tierlab_load::workers::frame::{FrameError, Kind};
use tierlab_load::workers::link::{self, Link, LinkError, Mouth, Orders};
use tierlab_load::workers::message::{
    self, Done, Failed, JourneyOrder, Pong, Ready, Setup, Start, StepDone, StepOrder,
};
use tierlab_load::workers::samples;
use tokio::net::unix::pipe::{Receiver, Sender};

/// Maximum bytes of an error's text sent to the run, far below a message's limit.
const MOST_WORDS: usize = 4_000;

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
    let at = Path::new("stdin and stdout, which the run makes pipes of");
    let pipes = || -> io::Result<(Receiver, Sender)> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok((Receiver::from_owned_fd(stdin)?, Sender::from_owned_fd(stdout)?))
    };
    let (stdin, stdout) = pipes().map_err(RunError::io(at))?;
    let link = Link::new("the run".into(), true, Box::new(stdin), Box::new(stdout));
    serve(link, &WallClock::off_by(0), Files::Here).await
}

/// Serves a run until its link ends. Errors are reported to the run.
///
/// # Errors
/// An invalid message, a server that does not answer, or a step that cannot be driven.
pub async fn serve(link: Link, clock: &WallClock, files: Files<'_>) -> Result<(), RunError> {
    let (reader, mut mouth) = link.halves();
    let (orders_in, mut orders) = link::orders();
    let worked = tokio::select! {
        // Notices the end of the link in the middle of a step.
        ended = link::pump(reader, orders_in) => Err(Stopped::Link(ended.into())),
        worked = work(&mut orders, &mut mouth, clock, files) => worked,
    };
    let error = match worked {
        Ok(never) => match never {},
        Err(Stopped::Link(error)) if error.is_gone() => return Ok(()),
        Err(Stopped::Link(error)) => RunError::Usage(error.to_string()),
        Err(Stopped::Run(error)) => error,
    };
    let mut what = error.to_string();
    what.truncate(what.floor_char_boundary(MOST_WORDS));
    match mouth.say(&Failed { what }).await {
        // The run reports it.
        Ok(()) if matches!(files, Files::Here) => Ok(()),
        _ => Err(error),
    }
}

/// Reason for the end of the work.
enum Stopped {
    Link(LinkError),
    Run(RunError),
}

impl From<RunError> for Stopped {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<PlanError> for Stopped {
    fn from(error: PlanError) -> Self {
        Self::Run(error.into())
    }
}

impl From<DriverError> for Stopped {
    fn from(error: DriverError) -> Self {
        Self::Run(error.into())
    }
}

enum Never {}

fn gone(error: impl Into<LinkError>) -> Stopped {
    Stopped::Link(error.into())
}

async fn work(orders: &mut Orders, mouth: &mut Mouth, clock: &WallClock, files: Files<'_>) -> Result<Never, Stopped> {
    let setup: Setup = message::parse(&orders.expect(Kind::Setup).await.map_err(gone)?).map_err(gone)?;
    if setup.of > workers::MOST || setup.share >= setup.of {
        let what = format!("share {} of {} is none", setup.share, setup.of);
        return Err(RunError::Usage(what).into());
    }
    let (plan, folder) = plan_of(orders, &setup, files).await?;
    let mut known: Option<(TargetSpec, Target)> = None;
    loop {
        let order: StepOrder = message::parse(&orders.expect(Kind::Order).await.map_err(gone)?).map_err(gone)?;
        plan.check_load(&order.load)?;
        let target = match known.take() {
            Some((spec, target)) if spec == order.target => target,
            _ => {
                let spec = relocated(&order.target, &plan, files);
                if let (Files::Sent(allowed), Some(folder)) = (files, &folder) {
                    allowed.check(&spec, folder.path()).map_err(RunError::Usage)?;
                }
                ask(&plan, &spec).await?
            }
        };
        let mut late = Duration::ZERO;
        let interrupt = Interrupt::never();
        if let Some(wanted) = &order.journey {
            let step = journeys(&plan, &target, &order, wanted).await?;
            let step = step.share(setup.share as usize, setup.of as usize);
            let up = up(orders, mouth, clock, &mut late);
            if let Some(travelled) = Box::pin(journey::run_from(step, up, &interrupt)).await? {
                hand_over(mouth, &HandedOver::from(travelled), late)
                    .await
                    .map_err(gone)?;
            }
            known = Some((order.target, target));
            continue;
        }
        let requests = Requests {
            plan: &plan,
            target: &target,
            load: order.load,
            model: &plan.model,
            seed: order.seed,
        };
        let step = requests.step(&requests.schedule(), &Watch::default())?.step;
        let step = step.share(setup.share as usize, setup.of as usize);
        let up = up(orders, mouth, clock, &mut late);
        let finished = Box::pin(driver::run_from(step, up, &interrupt)).await?;
        if let Some(finished) = finished {
            hand_over(mouth, &HandedOver::from(finished), late)
                .await
                .map_err(gone)?;
        }
        known = Some((order.target, target));
    }
}

/// Reports that users are up, and returns their start time.
async fn up(
    orders: &mut Orders,
    mouth: &mut Mouth,
    clock: &WallClock,
    late: &mut Duration,
) -> Result<Instant, Stopped> {
    mouth.say(&Ready {}).await.map_err(gone)?;
    let start = started(orders, mouth, clock).await?;
    // The clock's zero is the ordered time, even if it has passed: lateness shows in the samples too.
    *late = Instant::now().saturating_duration_since(start);
    Ok(start)
}

/// Runs all journeys of an order.
async fn journeys(plan: &Plan, target: &Target, order: &StepOrder, wanted: &JourneyOrder) -> Result<Journey, Stopped> {
    let journey = plan.journeys.iter().find(|journey| journey.name == wanted.name);
    let Some(journey) = journey else {
        let what = format!("its plan has no journey `{}`", wanted.name);
        return Err(RunError::Usage(what).into());
    };
    let prepared = Prepared::of(plan, target, journey).await?;
    let arrivals = Schedule::new(&plan.arrivals, order.load.rate, plan.warmup, plan.window, order.seed);
    Ok(prepared.journey(plan, &Arc::new(arrivals), order.seed, &Watch::default()))
}

/// Reads the plan, with the folder of its files for as long as it is needed.
async fn plan_of(orders: &mut Orders, setup: &Setup, files: Files<'_>) -> Result<(Plan, Option<TempDir>), Stopped> {
    if let Files::Here = files {
        return Ok((Plan::parse(&setup.file, &setup.plan)?, None));
    }
    let folder = sent_files::receive(orders, setup).await.map_err(|error| match error {
        sent_files::Error::Link(error) => Stopped::Link(error),
        sent_files::Error::Run(error) => Stopped::Run(error),
    })?;
    let file = sent_files::place(folder.path(), &setup.file).map_err(RunError::Usage)?;
    let plan = Plan::parse_sent(folder.path(), &file, &setup.plan)?;
    Ok((plan, Some(folder)))
}

/// Replaces the files of a plan's `[target]` bodies by the sent copies.
fn relocated(spec: &TargetSpec, plan: &Plan, files: Files<'_>) -> TargetSpec {
    let mut spec = spec.clone();
    let own = plan.target.as_ref().and_then(|target| target.custom.as_ref());
    if let (Files::Sent(_), Some(custom), Some(own)) = (files, &mut spec.custom, own) {
        custom.body = own.body.clone();
    }
    spec
}

/// Answers requests for the time until the start order comes.
async fn started(orders: &mut Orders, mouth: &mut Mouth, clock: &WallClock) -> Result<Instant, Stopped> {
    loop {
        let heard = tokio::time::timeout(START_LIMIT, orders.hear()).await;
        let (kind, body) = heard.map_err(|_| gone(LinkError::Silent(START_LIMIT)))?.map_err(gone)?;
        match kind {
            Kind::Ping => {
                let clock_ns = clock.now_ns();
                mouth.say(&Pong { clock_ns }).await.map_err(gone)?;
            }
            Kind::Start => {
                let start: Start = message::parse(&body).map_err(gone)?;
                return Ok(clock.instant(start.clock_ns));
            }
            other => return Err(gone(FrameError::Unexpected(other))),
        }
    }
}

/// Reads the model's metadata from a server. The run knows its tier and cache.
async fn ask(plan: &Plan, spec: &TargetSpec) -> Result<Target, RunError> {
    let control = Control::of(spec)?;
    if let (Some(spec), Some(custom)) = (&spec.custom, control.custom()) {
        let content = Content::custom(plan, spec, custom);
        return Ok(Target::of(control, content, BTreeMap::new()));
    }
    let model = control.model(&plan.model).await?;
    let outputs = BTreeMap::from([(plan.model.clone(), model.outputs.clone())]);
    let target = Target::of(control, Content::of(plan, &model)?, outputs);
    // The outputs with a row for each row are found by a request, as in the run itself; entities need none, and would
    // touch the cache.
    if !matches!(target.content, Content::Joined(_)) {
        check_reply(plan, &target, &plan.model).await?;
    }
    Ok(target)
}

/// Results of a step for the run.
struct HandedOver {
    observed: Observed,
    examples: BTreeMap<Failure, String>,
    /// Number of samples of requests or of whole journeys.
    of_whole: usize,
    /// Number of samples of each step of journeys, with an example of a failure.
    steps: Vec<(usize, Option<(Failure, String)>)>,
    /// All samples in that order.
    samples: Vec<Sample>,
}

impl From<Finished> for HandedOver {
    fn from(finished: Finished) -> Self {
        Self {
            observed: finished.observed,
            examples: finished.examples,
            of_whole: finished.samples.len(),
            steps: Vec::new(),
            samples: finished.samples,
        }
    }
}

impl From<Travelled> for HandedOver {
    fn from(travelled: Travelled) -> Self {
        let mut samples: Vec<Sample> = travelled.journeys.iter().map(|whole| whole.sample).collect();
        let of_whole = samples.len();
        let mut steps = Vec::new();
        for (step, examples) in travelled.steps.iter().zip(travelled.examples) {
            samples.extend(step.iter().map(StepSample::where_due));
            steps.push((step.len(), examples.into_iter().next()));
        }
        Self {
            observed: travelled.observed,
            examples: BTreeMap::new(),
            of_whole,
            steps,
            samples,
        }
    }
}

async fn hand_over(mouth: &mut Mouth, left: &HandedOver, late: Duration) -> Result<(), LinkError> {
    let steps = left.steps.iter().map(|(samples, example)| StepDone {
        samples: *samples,
        example: example.clone(),
    });
    mouth
        .say(&Done {
            limit_hit: left.observed.limit_hit,
            mean_in_flight: left.observed.mean_in_flight,
            late_us: u64::try_from(late.as_micros()).unwrap_or(u64::MAX),
            samples: left.of_whole,
            examples: left.examples.clone().into_iter().collect(),
            steps: steps.collect(),
        })
        .await?;
    for body in samples::encode(&left.samples) {
        mouth.say_bytes(Kind::Samples, &body).await?;
    }
    Ok(())
}
