//! A repeat of a point, driven: callers in a closed loop, or at due times that were fixed beforehand. In: how calls are
//! made. Out: what the callers saw, and what the machine did meanwhile.

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

/// What came of a repeat.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) tally: Tally,
    /// The window that calls are counted in.
    pub(crate) window: Duration,
    /// The machine at the window's begin, and at its end or at that of the last call of an open loop.
    pub(crate) looks: (Look, Look),
}

/// Looks at the machine at the window's begin, lets callers finish, and looks again.
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

    /// How long it is until the window begins, and from there until it ends.
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
