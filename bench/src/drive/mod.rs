//! A repeat of a point: callers in a closed loop, or at due times fixed in advance. In: callers. Out: their results, and the use of the
//! machine during the repeat.

mod repeat_run;
mod tally;
mod tasks;
mod threads;

pub(crate) use repeat_run::{Call, Caller, RepeatRun};
pub(crate) use tally::{Second, Sums, Tally};
pub(crate) use tasks::run_tasks;
pub(crate) use threads::{BlockingCaller, run_threads};

use crate::machine::{MachineMonitor, MachineUse};
use crate::stop::{POLL_INTERVAL, sleep_until};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Results of a repeat.
#[derive(Debug)]
pub(crate) struct RepeatResult {
    pub(crate) tally: Tally,
    /// Calls by the second of the window in which they ended, without an incomplete last second.
    pub(crate) seconds: Vec<Second>,
    /// Length of the window in which calls are counted.
    pub(crate) window: Duration,
    /// The machine during the window.
    pub(crate) machine: MachineUse,
}

/// Watches callers until their repeat is over. `join` waits for them, and returns their results.
fn watch(run: &RepeatRun, monitor: &MachineMonitor, join: impl FnOnce() -> Result<Tally>) -> Result<RepeatResult> {
    let wait = |until| sleep_until(until, POLL_INTERVAL, || run.is_over());
    wait(run.first_sample());
    let first = monitor.sample();
    wait(run.window_end);
    // Calls that end after the window count neither in its rates nor in the load on the machine.
    let out_of_data = run.is_out_of_data();
    let sample_at_end = (!out_of_data && !run.ends_with_sync).then(|| monitor.sample());
    let tally = join()?;
    let last = sample_at_end.unwrap_or_else(|| monitor.sample());
    // Shorter after an interrupt.
    let end = match (run.ends_with_sync, out_of_data) {
        (true, _) => last.at,
        (false, true) => tally.last_end.unwrap_or(last.at).min(run.window_end),
        (false, false) => Instant::now().min(run.window_end),
    };
    // A runtime's timer starts the first call up to a millisecond late.
    let start = tally.first_start.filter(|_| out_of_data).unwrap_or(run.window_start);
    let window = end.saturating_duration_since(start);
    let is_measured = !window.is_zero() || run.is_cut_short();
    ensure!(is_measured, "no call began within the window: raise `seconds`");
    Ok(RepeatResult {
        tally,
        seconds: run.seconds(window),
        window,
        machine: last.since(&first),
    })
}
