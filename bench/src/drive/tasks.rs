//! Callers that are tasks of a runtime, for tiers. In: a repeat, and one caller for each call in flight. Out: their results.
//! A thread of its own keeps the due times of an open loop, because the runtime's timer is a millisecond late.

use super::repeat_run::Caller;
use super::{RepeatResult, RepeatRun, Tally, watch};
use crate::machine::MachineMonitor;
use crate::stop::{POLL_INTERVAL, sleep_until};
use anyhow::{Context, Result};
use futures::future::join_all;
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};

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
    let pacer = run.due.is_some().then(|| pace(run.clone(), tickets.clone()));
    // Without it, callers would wait for tickets forever.
    let pacer = pacer.transpose()?;
    let spawn = |(number, caller)| {
        let (waits, given_up) = oneshot::channel();
        let task = runtime.spawn(call(run.clone(), caller, number, tickets.clone(), given_up));
        (waits, task)
    };
    let (awaited, running): (Vec<_>, Vec<_>) = (0..).zip(callers).map(spawn).unzip();
    watch(run, monitor, || {
        let ended = runtime.block_on(async {
            let mut running = pin!(join_all(running));
            tokio::select! {
                ended = &mut running => return ended,
                // Wakes the callers whose calls have not ended.
                () = run.given_up() => drop(awaited),
            }
            running.await
        });
        let mut tally = Tally::default();
        let mut failure = None;
        for task in ended {
            match task.context("a caller panicked")? {
                Ok(own) => tally.add(&own),
                Err(error) => failure = Some(error),
            }
        }
        if let Some(pacer) = pacer {
            let _ = pacer.join();
        }
        failure.map_or(Ok(tally), Err)
    })
}

/// Releases a ticket whenever a call is due.
fn pace(run: Arc<RepeatRun>, tickets: Arc<Semaphore>) -> Result<std::thread::JoinHandle<()>> {
    let release = move || {
        let _ = nix::sys::prctl::set_timerslack(1);
        for due in run.due.iter().flatten() {
            sleep_until(run.start + *due, POLL_INTERVAL, || run.is_over());
            tickets.add_permits(1);
        }
        // Wakes all callers to find no calls left.
        tickets.close();
    };
    let thread = std::thread::Builder::new().name("bench-pacer".to_owned());
    thread.spawn(release).context("cannot start the pacer")
}

async fn call(
    run: Arc<RepeatRun>,
    mut caller: impl Caller,
    number: u32,
    tickets: Arc<Semaphore>,
    mut given_up: oneshot::Receiver<()>,
) -> Result<Tally> {
    let mut random = run.random(number);
    let mut tally = Tally::default();
    let is_open = run.due.is_some();
    tokio::time::sleep_until(run.start.into()).await;
    loop {
        // A closed semaphore means that all calls are due: the remaining calls need no ticket.
        if is_open && let Ok(ticket) = tickets.acquire().await {
            ticket.forget();
        }
        let Some(next) = run.next_call(&mut random, &mut tally) else {
            return Ok(tally);
        };
        let ended = tokio::select! {
            biased;
            ended = caller.call(next.pick, next.at) => ended,
            _ = &mut given_up => return run.give_up(next, &mut tally).map(|()| tally),
        };
        match ended {
            Ok(call) => run.count(next, &call, &mut tally),
            Err(error) => run.handle_error(error, next.at, &mut tally)?,
        }
        // A tier in memory never waits: yields to other callers.
        tokio::task::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::*;
    use crate::plan::{Access, Point};
    use crate::random::Pick;
    use crate::stop::Stop;
    use std::time::{Duration, Instant};

    /// Makes a call that never ends.
    struct Hung;

    impl Caller for Hung {
        async fn call(&mut self, _: Pick, _: Instant) -> Result<Call> {
            std::future::pending().await
        }
    }

    fn hung(rate: u32, window: Duration, stop: &Stop) -> Result<RepeatResult> {
        let point = Point {
            rate,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(4096, window, Duration::ZERO);
        let run = RepeatRun::new(&point, &access, 4096, 0, stop)?;
        let runtime = Runtime::new()?;
        run_tasks(&runtime, &Arc::new(run), [Hung, Hung], &MachineMonitor::default())
    }

    #[test]
    fn an_interrupt_ends_calls_that_never_end() {
        let (stop, started) = (Stop::default(), Instant::now());
        let later = stop.clone();
        let interrupt = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            later.request();
        });
        let outcome = hung(0, Duration::from_secs(60), &stop).unwrap();
        interrupt.join().unwrap();
        assert_eq!(outcome.tally.sums.calls, 0);
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn due_calls_that_never_end_are_unfinished() {
        let outcome = hung(500, Duration::from_millis(100), &Stop::default()).unwrap();
        let sums = outcome.tally.sums;
        assert!(sums.calls == 0 && sums.unfinished > 10, "{sums:?}");
        assert_eq!(sums.unfinished, outcome.tally.latency_ns.len());
    }

    #[test]
    fn a_call_of_a_closed_loop_that_never_ends_is_an_error() {
        let window = Duration::from_millis(10);
        let access = Access::reads(4096, window, Duration::ZERO);
        let run = RepeatRun::new(&Point::reads("t", 4096), &access, 4096, 0, &Stop::default()).unwrap();
        let mut tally = Tally::default();
        let next = run.next_call(&mut run.random(0), &mut tally).unwrap();
        let error = run.give_up(next, &mut tally).unwrap_err().to_string();
        assert!(error.contains("did not end for 30 s"), "{error}");
    }
}
