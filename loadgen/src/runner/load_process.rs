//! A load process: takes orders on stdin, sends its share, and hands its samples over on stdout. Ends when stdin does,
//! and so with the run that started it, however that ended.

use super::check_reply::check_reply;
use super::send::Requests;
use super::target::{Content, Target};
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::control::Control;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;
use tierlab_load::driver::{self, Finished};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::workers::message::{self, Ready, SentSample, Setup, Start, StepDone, StepOrder};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// Serves a run until stdin closes, which ends the process.
///
/// # Errors
/// What is said makes no sense, the server does not answer, or a step cannot be driven.
pub async fn serve() -> Result<Infallible, RunError> {
    let mut orders = listen();
    let setup: Setup = next(&mut orders).await?;
    let plan = Plan::parse(&setup.file, &setup.plan)?;
    let mut known: Option<Target> = None;
    loop {
        let order: StepOrder = next(&mut orders).await?;
        let target = match known.take() {
            Some(target) if *target.control.spec() == order.target => target,
            _ => ask(&plan, &order).await?,
        };
        let requests = Requests {
            plan: &plan,
            target: &target,
            load: order.load,
            model: &plan.model,
            seed: order.seed,
        };
        let step = requests.step(&requests.schedule(), &Watch::default())?.step;
        let step = step.share(setup.share as usize, setup.of as usize);
        known = Some(target);
        let up = async {
            say(&[Ready {}])?;
            let start: Start = next(&mut orders).await?;
            Ok::<_, RunError>(start.instant())
        };
        let interrupt = Interrupt::never();
        if let Some(finished) = Box::pin(driver::run_from(step, up, &interrupt)).await? {
            hand_over(&finished)?;
        }
    }
}

/// What a server is asked. Its tier and cache are the run's to know.
async fn ask(plan: &Plan, order: &StepOrder) -> Result<Target, RunError> {
    let control = Control::of(&order.target)?;
    if let (Some(spec), Some(custom)) = (&order.target.custom, control.custom()) {
        let content = Content::custom(plan, spec, custom);
        return Ok(Target::of(control, content, BTreeMap::new()));
    }
    let model = control.model(&plan.model).await?;
    let outputs = BTreeMap::from([(plan.model.clone(), model.outputs.clone())]);
    let target = Target::of(control, Content::of(plan, &model)?, outputs);
    // Which outputs have a row for each row is found out by asking, as the run itself did; entities need no asking, and would
    // touch the cache.
    if !matches!(target.content, Content::Joined(_)) {
        check_reply(plan, &target, &plan.model).await?;
    }
    Ok(target)
}

fn hand_over(finished: &Finished) -> Result<(), RunError> {
    let began = finished.window_began.duration_since(UNIX_EPOCH).unwrap_or_default();
    say(&[StepDone {
        limit_hit: finished.observed.limit_hit,
        mean_in_flight: finished.observed.mean_in_flight,
        window_began_unix_us: u64::try_from(began.as_micros()).unwrap_or(u64::MAX),
        samples: finished.samples.len(),
        examples: finished.examples.clone().into_iter().collect(),
    }])?;
    say(finished.samples.iter().map(SentSample::from))
}

fn say<M: Serialize>(messages: impl IntoIterator<Item = M>) -> Result<(), RunError> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let write = || -> io::Result<()> {
        for message in messages {
            writeln!(stdout, "{}", message::line(&message))?;
        }
        stdout.flush()
    };
    write().map_err(RunError::io(Path::new("stdout")))
}

/// Lines of stdin, read by a thread, so that its end is seen in the middle of a step.
fn listen() -> UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    receiver
}

async fn next<M: DeserializeOwned>(orders: &mut UnboundedReceiver<String>) -> Result<M, RunError> {
    // The channel ends with the process.
    let line = orders.recv().await.unwrap_or_default();
    message::parse(&line).map_err(RunError::Usage)
}
