//! What a person sees while a run goes on. In: steps begun and finished. Out: a bar with an ETA on a terminal, plain
//! lines elsewhere, all on stderr. Redraws once a second at most, so that it does not disturb what is measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    expected_step: Duration,
    steps: u32,
    begun: u32,
    /// Of these, not run because they were there already.
    skipped: u32,
}

impl Progress {
    /// For a run of `steps` steps, each of which should take `expected_step`.
    #[must_use]
    pub fn new(steps: u32, expected_step: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(1);
            let bar = ProgressBar::with_draw_target(Some(u64::from(steps)), target);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {elapsed}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        // Without any, only a search goes on, which no one knows the length of.
        if bar.is_none() && steps > 0 {
            eprintln!("{steps} steps, about {}", readable(expected_step * steps));
        }
        Self {
            bar,
            started: Instant::now(),
            expected_step,
            steps,
            begun: 0,
            skipped: 0,
        }
    }

    /// More steps than were thought of.
    pub fn more(&mut self, steps: u32) {
        self.steps += steps;
        if let Some(bar) = &self.bar {
            bar.inc_length(u64::from(steps));
        }
    }

    /// A step begins.
    pub fn begin(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            let (done, steps) = (self.begun - self.skipped, self.steps - self.skipped);
            let left = remaining(done, steps, self.started.elapsed(), self.expected_step);
            bar.set_message(format!("ETA {}  {what}", readable(left)));
        }
        self.begun += 1;
    }

    /// A step is there already.
    pub fn skip(&mut self) {
        self.begun += 1;
        self.skipped += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// The step under way is finished; `line` is what there is to say of it.
    pub fn finish(&self, line: &str) {
        self.say(&format!("[{}/{}] {line}", self.begun, self.steps));
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What the steps that are left will take: as long as those so far, or as expected before there is one.
fn remaining(done: u32, steps: u32, elapsed: Duration, expected_step: Duration) -> Duration {
    let step = elapsed.checked_div(done).unwrap_or(expected_step);
    step * steps.saturating_sub(done)
}

/// A time for people: `3m20s`.
#[must_use]
pub fn readable(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_expected_and_then_measured() {
        let seconds = Duration::from_secs;
        assert_eq!(remaining(0, 10, seconds(0), seconds(3)), seconds(30));
        assert_eq!(remaining(2, 10, seconds(8), seconds(3)), seconds(32));
        assert_eq!(remaining(10, 10, seconds(40), seconds(3)), seconds(0));
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(1_200)), "2s");
        assert_eq!(readable(Duration::from_secs(200)), "3m20s");
        assert_eq!(readable(Duration::from_secs(7_265)), "2h01m");
    }
}
