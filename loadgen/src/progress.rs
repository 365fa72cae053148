//! What a person sees while a run goes on. In: steps begun and finished. Out: a bar with an ETA on a terminal, plain
//! lines elsewhere, all on stderr. Redraws once a second at most, so that it does not disturb what is measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The progress of one run.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    steps: u64,
    begun: u64,
}

impl Progress {
    /// For a run of `steps` steps; the bar counts steps, and its ETA is theirs.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(1));
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {elapsed} (ETA {eta})  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, steps, begun: 0 }
    }

    /// A step begins.
    pub fn begin(&mut self, what: &str) {
        self.begun += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
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
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(1_200)), "2s");
        assert_eq!(readable(Duration::from_secs(200)), "3m20s");
        assert_eq!(readable(Duration::from_secs(7_265)), "2h01m");
    }
}
