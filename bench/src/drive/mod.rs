//! A repeat of a point: callers in a closed loop, or at due times fixed in advance. In: callers. Out: their results, and the use of the
//! machine during the repeat.

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
    /// Calls by the second of the window in which they ended, without an incomplete last second.
    pub(crate) seconds: Vec<Second>,
    /// Length of the window in which calls are counted.
    pub(crate) window: Duration,
    /// The machine during the window.
    pub(crate) machine: MachineUse,
}

/// Time between two checks of a waiting thread.
const WAKE: Duration = Duration::from_millis(5);

/// Watches callers until their repeat is over. `join` waits for them, and returns their results.
fn watch(course: &Course, watched: &Watched, join: impl FnOnce() -> Result<Tally>) -> Result<Driven> {
    let wait = |until| sleep_until(until, WAKE, || course.is_over());
    wait(course.measure_from);
    let first = watched.look();
    wait(course.until);
    // Calls that end after the window count neither in its rates nor in the load on the machine.
    let ran_out = course.ran_out();
    let at_end = (!ran_out && !course.ends_with_sync).then(|| watched.look());
    let tally = join()?;
    let last = at_end.unwrap_or_else(|| watched.look());
    // Shorter after an interrupt.
    let end = match (course.ends_with_sync, ran_out) {
        (true, _) => last.at,
        (false, true) => tally.last_end.unwrap_or(last.at).min(course.until),
        (false, false) => Instant::now().min(course.until),
    };
    let window = end.saturating_duration_since(course.measure_from);
    Ok(Driven {
        tally,
        seconds: course.seconds(window),
        window,
        machine: last.since(&first),
    })
}
