//! What a person sees while a run goes on: a bar with the time that is left, or lines where there is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};
use tierlab_instrument::units::wait;

/// The progress of a run.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    expected: Duration,
    todo: u64,
    done: u64,
}

impl Progress {
    pub(crate) fn new(todo: u64, expected: Duration) -> Self {
        let bar = ProgressBar::new(todo);
        if let Ok(style) = ProgressStyle::with_template("{msg}\n{wide_bar} {pos}/{len}  {elapsed}") {
            bar.set_style(style);
        }
        if bar.is_hidden() {
            let all = expected.saturating_mul(u32::try_from(todo).unwrap_or(u32::MAX));
            eprintln!("{todo} repeats, about {}", wait(all));
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
        let each = match u32::try_from(self.done) {
            Ok(done) if done > 0 => self.started.elapsed() / done,
            _ => self.expected,
        };
        let left = each.saturating_mul(u32::try_from(self.todo - self.done).unwrap_or(u32::MAX));
        self.bar.set_message(format!("ETA {}  {what}", wait(left)));
    }

    /// It ended.
    pub(crate) fn end(&mut self) {
        self.done += 1;
        self.bar.inc(1);
        // Without a terminal a line now and then.
        let tenth = (self.todo / 10).max(1);
        if self.bar.is_hidden() && self.done.is_multiple_of(tenth) {
            let each = self.started.elapsed() / u32::try_from(self.done).unwrap_or(u32::MAX);
            let left = each.saturating_mul(u32::try_from(self.todo - self.done).unwrap_or(u32::MAX));
            eprintln!("{}/{} repeats, ETA {}", self.done, self.todo, wait(left));
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
