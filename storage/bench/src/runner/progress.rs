//! Progress of a run: a bar with the time that is left, or lines where there is no terminal.

use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use tierlab_instrument::progress::{bar, pace, remaining};
use tierlab_instrument::units::wait;

/// The progress of a run.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    expected: Duration,
    todo: u32,
    done: u32,
}

impl Progress {
    pub(crate) fn new(todo: u64, expected: Duration) -> Self {
        let todo = u32::try_from(todo).unwrap_or(u32::MAX);
        let bar = bar(todo);
        if bar.is_none() {
            eprintln!("{todo} repeats, about {}", wait(expected.saturating_mul(todo)));
        }
        Self {
            bar,
            started: Instant::now(),
            expected,
            todo,
            done: 0,
        }
    }

    /// A repeat begins.
    pub(crate) fn begin(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}  {what}", self.eta()));
        }
    }

    /// It ended.
    pub(crate) fn end(&mut self) {
        self.done += 1;
        // Without a terminal a line now and then.
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.done.is_multiple_of((self.todo / 10).max(1)) => {
                eprintln!("{}/{} repeats, {}", self.done, self.todo, self.eta());
            }
            None => {}
        }
    }

    fn eta(&self) -> String {
        let (step, left) = pace(self.done, self.todo, self.started.elapsed(), self.expected);
        format!("ETA {}", wait(remaining(step, left, Duration::ZERO)))
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
