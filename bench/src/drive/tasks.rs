//! Callers that are tasks of a runtime, for tiers. In: a repeat, and one caller for each call in flight. Out: their results.
//! A thread of its own keeps the due times of an open loop, because the runtime's timer is a millisecond late.

use super::repeat_run::Caller;
use super::{RepeatResult, RepeatRun, Tally, watch};
use crate::machine::MachineMonitor;
use crate::stop::sleep_until;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Interval at which the pacer checks whether it is still needed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a repeat.
///
/// # Errors
/// A failed access, or wrong bytes.
pub(crate) fn run_tasks(
    runtime: &Runtime,
    run: &Arc<RepeatRun>,
    callers: impl IntoIterator<Item = impl Caller>,
    monitor: &MachineMonitor,
) -> Result<RepeatResult> {
    let tickets = Arc::new(Semaphore::new(0));
    let pacer = run.due().is_some().then(|| pace(run.clone(), tickets.clone()));
    let spawn = |(number, caller)| runtime.spawn(call(run.clone(), caller, number, tickets.clone()));
    let running: Vec<_> = (0..).zip(callers).map(spawn).collect();
    watch(run, monitor, || {
        let mut tally = Tally::default();
        let mut failure = None;
        for task in running {
            match runtime.block_on(task).context("a caller panicked")? {
                Ok(own) => tally.add(&own),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(pacer) = pacer {
            let _ = pacer?.join();
        }
        failure.map_or(Ok(tally), Err)
    })
}

/// Releases a ticket whenever a call is due.
fn pace(run: Arc<RepeatRun>, tickets: Arc<Semaphore>) -> Result<std::thread::JoinHandle<()>> {
    let release = move || {
        let _ = nix::sys::prctl::set_timerslack(1);
        for due in run.due().unwrap_or_default() {
            sleep_until(run.start + *due, POLL_INTERVAL, || run.is_over());
            tickets.add_permits(1);
        }
        // Wakes all callers to find no calls left.
        tickets.close();
    };
    let thread = std::thread::Builder::new().name("bench-pacer".to_owned());
    thread.spawn(release).context("cannot start the pacer")
}

async fn call(run: Arc<RepeatRun>, mut caller: impl Caller, number: u32, tickets: Arc<Semaphore>) -> Result<Tally> {
    let mut random = run.random(number);
    let mut tally = Tally::default();
    let is_open = run.due().is_some();
    tokio::time::sleep_until(run.start.into()).await;
    loop {
        // A closed semaphore means that all calls are due: the remaining calls need no ticket.
        if is_open && let Ok(ticket) = tickets.acquire().await {
            ticket.forget();
        }
        let Some(next) = run.next_call(&mut random, &mut tally) else {
            return Ok(tally);
        };
        match caller.call(next.pick).await {
            Ok(call) => run.count(next, &call, &mut tally),
            Err(error) => run.handle_error(error, next.at, &mut tally)?,
        }
        // A tier in memory never waits: yields to other callers.
        tokio::task::consume_budget().await;
    }
}
