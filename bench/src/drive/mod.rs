//! A repeat of a point: callers in a closed loop, or at due times that were fixed beforehand. In: callers. Out: their results, and the use of
//! the machine meanwhile.

mod course;
mod schedule;
mod tally;
mod tasks;
mod threads;

pub(crate) use course::{Call, Caller, Course};
pub(crate) use tally::{Sums, Tally};
pub(crate) use tasks::tasks;
pub(crate) use threads::{Blocking, threads};

use crate::machine::Look;
use std::time::{Duration, Instant};

/// Results of a repeat.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) tally: Tally,
    /// Length of the window that calls are counted in.
    pub(crate) window: Duration,
    /// The machine at the begin of the window, and at its end or at that of the last call of an open loop.
    pub(crate) looks: (Look, Look),
}

impl Driven {
    fn new(course: &Course, tally: Tally, looks: (Look, Look)) -> Self {
        // Shorter after an interrupt, or where the data came to its end.
        let end = course.ran_out().unwrap_or_else(Instant::now).min(course.until);
        Self {
            tally,
            window: end.saturating_duration_since(course.measure_from),
            looks,
        }
    }
}
