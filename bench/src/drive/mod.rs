//! A repeat of a point: callers in a closed loop, or at due times that were fixed beforehand. In: callers. Out: their results, and the use of
//! the machine meanwhile.

mod course;
mod tally;
mod tasks;
mod threads;

pub(crate) use course::{Call, Caller, Course};
pub(crate) use tally::{Second, Sums, Tally};
pub(crate) use tasks::tasks;
pub(crate) use threads::{Blocking, threads};

use crate::machine::{MachineUse, Watched};
use crate::stop::sleep_until;
use anyhow::Result;
use std::time::{Duration, Instant};

/// Results of a repeat.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) tally: Tally,
    /// Calls by the second of the window in which they ended; a second that the window cut short is left out.
    pub(crate) seconds: Vec<Second>,
    /// Length of the window that calls are counted in.
    pub(crate) window: Duration,
    /// The machine from the begin of the window to its end, or to that of the last call of an open loop.
    pub(crate) machine: MachineUse,
}

/// Time between checks of who waits.
const WAKE: Duration = Duration::from_millis(5);

/// Watches callers until their repeat is over. `join` waits for them, and returns their results.
fn watch(course: &Course, watched: &Watched, join: impl FnOnce() -> Result<Tally>) -> Result<Driven> {
    let wait = |until| sleep_until(until, WAKE, || course.is_over());
    wait(course.measure_from);
    let first = watched.look();
    wait(course.until);
    // In a closed loop the last calls end after the window: neither they nor their load on the machine count.
    let at_end = (course.due().is_none() && !course.ends_with_calls).then(|| watched.look());
    let tally = join()?;
    let last = at_end.unwrap_or_else(|| watched.look());
    // Shorter after an interrupt, or where the data came to its end.
    let end = match (course.is_once, course.ends_with_calls) {
        (true, _) => tally.last_end.unwrap_or(last.at),
        (false, true) => last.at,
        (false, false) => course.ran_out().unwrap_or_else(Instant::now).min(course.until),
    };
    let window = end.saturating_duration_since(course.measure_from);
    Ok(Driven {
        tally,
        seconds: course.seconds(window),
        window,
        machine: last.since(&first),
    })
}
