//! Execution of a repeat of a point: callers in a closed loop, or at precomputed due times. In: the way of calling.
//! Out: the callers' figures, and the machine's counters.

mod course;
mod schedule;
mod tally;
mod tasks;
mod threads;

pub(crate) use course::Course;
pub(crate) use tally::{Faults, Tally};
pub(crate) use tasks::tasks;
pub(crate) use threads::threads;

use crate::machine::{Look, Watched};
use std::time::{Duration, Instant};

/// Result of a repeat.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) tally: Tally,
    /// Counted window.
    pub(crate) window: Duration,
    /// Machine at the window's begin, and at its end or at the end of an open loop's last call.
    pub(crate) looks: (Look, Look),
}

/// Reads the machine's counters at the window's begin, lets callers finish, and reads them again.
struct Window<'a> {
    course: &'a Course,
    watched: &'a Watched,
    first: Option<Look>,
}

impl<'a> Window<'a> {
    const fn new(course: &'a Course, watched: &'a Watched) -> Self {
        Self {
            course,
            watched,
            first: None,
        }
    }

    fn begins(&mut self) {
        self.first = Some(self.watched.look());
    }

    /// Returns the begin and the end of the window.
    fn times(&self) -> (Instant, Instant) {
        (self.course.measure_from, self.course.until)
    }

    fn ends(mut self, tally: Tally, last: Look) -> Driven {
        let first = self.first.take().unwrap_or_else(|| last.clone());
        Driven {
            tally,
            window: self.course.until - self.course.measure_from,
            looks: (first, last),
        }
    }
}
