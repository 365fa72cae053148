//! Progress display of a run. In: steps begun and finished, and counters of the current step. Out, on stderr: a bar
//! with the run's ETA and the step's figures on a terminal, redrawn by a separate thread ([`tierlab_load::live`]
//! explains why that does not disturb the measurement); plain lines elsewhere.

use console::{Term, measure_text_width, truncate_str};
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use tierlab_instrument::progress::{bar, pace, remaining};
use tierlab_instrument::units::wait;
use tierlab_load::live::{Seen, View, Watch};

/// Progress of one run.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// View of the current step.
    view: Option<View>,
    started: Instant,
    expected_step: Duration,
    steps: u32,
    /// True if a search may add steps that are not known yet.
    open_ended: bool,
    /// Expected number of search steps, and the deadline of the searches.
    search: Option<(u32, Instant)>,
    begun: u32,
    /// Steps not run because they were finished before.
    skipped: u32,
}

impl Progress {
    /// Starts the display of a run of `steps` steps, each expected to take `expected_step`. If `open_ended`, more steps
    /// may be added.
    #[must_use]
    pub fn new(steps: u32, expected_step: Duration, open_ended: bool) -> Self {
        let bar = bar(steps);
        // Without steps there is only a search, whose length is unknown.
        if bar.is_none() && steps > 0 {
            eprintln!("{steps} steps, about {}", wait(expected_step * steps));
        }
        Self {
            bar,
            view: None,
            started: Instant::now(),
            expected_step,
            steps,
            open_ended,
            search: None,
            begun: 0,
            skipped: 0,
        }
    }

    /// Adds steps beyond those expected.
    pub fn more(&mut self, steps: u32) {
        self.steps += steps;
        if let Some(bar) = &self.bar {
            bar.inc_length(u64::from(steps));
        }
    }

    /// Announces that searches take about `steps` more steps, the current ones included, and end by `ends`.
    pub fn searches(&mut self, steps: u32, ends: Instant) {
        self.search = Some((steps, ends));
        if self.bar.is_none() {
            let left = self.more_to_come(self.step_time()).unwrap_or_default();
            eprintln!("search: {left}");
        }
    }

    fn step_time(&self) -> Duration {
        pace(self.begun - self.skipped, 0, self.started.elapsed(), self.expected_step).0
    }

    /// Describes the steps that the search adds.
    fn more_to_come(&self, step: Duration) -> Option<String> {
        match self.search {
            None => self.open_ended.then(|| "and what the search adds".to_owned()),
            Some((steps, ends)) => {
                let most = ends.saturating_duration_since(Instant::now());
                let about = wait((step * steps).min(most));
                Some(format!("about {about} to go, at most {}", wait(most)))
            }
        }
    }

    /// Starts a step and returns a watch on its progress.
    pub fn begin(&mut self, what: &str) -> Watch {
        self.view = None;
        let (done, steps) = (self.begun - self.skipped, self.steps - self.skipped);
        self.begun += 1;
        let Some(bar) = self.bar.clone() else {
            return Watch::default();
        };
        let (step, left) = pace(done, steps, self.started.elapsed(), self.expected_step);
        let (what, more, began) = (what.to_owned(), self.more_to_come(step), Instant::now());
        let draw = move |seen: Seen| {
            let width = usize::from(Term::stderr().size().1);
            let eta = eta(remaining(step, left, began.elapsed()), more.as_deref());
            let mut lines = lay_out(&[eta, what.clone()], width);
            lines.extend(lay_out(&words(&seen), width));
            bar.set_message(lines.join("\n"));
        };
        let watch = Watch::on();
        // A bar without figures is still useful.
        self.view = View::start(&watch, draw).ok();
        watch
    }

    /// Counts a step that was finished before.
    pub fn skip(&mut self) {
        self.begun += 1;
        self.skipped += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Ends the current step and shows `line`.
    pub fn finish(&mut self, line: &str) {
        self.view = None;
        self.say(&format!("[{}/{}] {line}", self.begun, self.steps));
        if let Some(bar) = &self.bar {
            let (done, steps) = (self.begun - self.skipped, self.steps - self.skipped);
            let (step, left) = pace(done, steps, self.started.elapsed(), self.expected_step);
            let more = self.more_to_come(step);
            bar.set_message(eta(remaining(step, left, Duration::ZERO), more.as_deref()));
            bar.inc(1);
        }
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Removes the bar.
    pub fn clear(&mut self) {
        self.view = None;
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn eta(left: Duration, more: Option<&str>) -> String {
    let more = more.map_or_else(String::new, |more| format!(", {more}"));
    format!("ETA {}{more}", wait(left))
}

/// Describes a look at a step, in phrases that each may have a line of their own.
fn words(seen: &Seen) -> Vec<String> {
    let figures = match seen {
        Seen::Preparing => return vec!["making requests and starting users".into()],
        Seen::Processes(processes) => {
            return vec![
                format!("sent by {processes} processes"),
                "their figures come at the step's end".into(),
            ];
        }
        Seen::Figures(figures) => figures,
    };
    let mut words = vec![
        format!("sent {}/s", short(figures.sent_rps)),
        format!("answered {}/s", short(figures.answered_rps)),
    ];
    match (figures.p50_us, figures.p99_us) {
        (Some(p50), Some(p99)) => words.extend([
            format!("p50 {} ms", short(p50 / 1e3)),
            format!("p99 {} ms", short(p99 / 1e3)),
        ]),
        _ => words.push("nothing of the window is over yet".into()),
    }
    words.push(format!("{} errors", figures.errors));
    words.push(format!("{} in flight", figures.in_flight));
    words
}

/// Formats three digits, for readability.
fn short(value: f64) -> String {
    let digits = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// Breaks text into lines of at most `width` columns, between words only; a word that is too long for a line is cut.
fn lay_out(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if measure_text_width(line) + 2 + measure_text_width(word) <= width => {
                line.push_str("  ");
                line.push_str(word);
            }
            _ => lines.push(truncate_str(word, width, "…").into_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_load::live::Figures;

    const FIGURES: Figures = Figures {
        sent_rps: 1203.4,
        answered_rps: 1198.0,
        p50_us: Some(1_234.0),
        p99_us: Some(45_678.0),
        errors: 3,
        in_flight: 12,
    };

    #[test]
    fn searches_say_how_long_they_go_on() {
        let seconds = Duration::from_secs;
        assert_eq!(eta(seconds(29), None), "ETA 29s");
        let mut progress = Progress::new(0, seconds(3), true);
        let open = progress.more_to_come(seconds(3));
        assert_eq!(eta(seconds(29), open.as_deref()), "ETA 29s, and what the search adds");
        progress.searches(10, Instant::now() + seconds(3_600));
        assert!(
            progress
                .more_to_come(seconds(3))
                .unwrap()
                .starts_with("about 30s to go, at most ")
        );
        progress.searches(10, Instant::now());
        assert_eq!(progress.more_to_come(seconds(3)).unwrap(), "about 0s to go, at most 0s");
    }

    #[test]
    fn figures_stand_in_one_line_where_there_is_room_and_in_more_where_there_is_not() {
        let words = words(&Seen::Figures(FIGURES));
        assert_eq!(
            lay_out(&words, 80),
            ["sent 1203/s  answered 1198/s  p50 1.23 ms  p99 45.7 ms  3 errors  12 in flight"]
        );
        assert_eq!(
            lay_out(&words, 40),
            [
                "sent 1203/s  answered 1198/s",
                "p50 1.23 ms  p99 45.7 ms  3 errors",
                "12 in flight"
            ]
        );
        assert_eq!(
            lay_out(&["s3 cold realtime×1 at 50/s".into()], 20),
            ["s3 cold realtime×1 …"]
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        let none = Figures {
            p50_us: None,
            p99_us: None,
            ..FIGURES
        };
        let text = |seen: Seen| words(&seen).join(" ");
        assert!(text(Seen::Figures(none)).contains("nothing of the window is over yet"));
        assert!(!text(Seen::Figures(none)).contains("p50"));
        assert!(text(Seen::Processes(4)).contains("4 processes their figures come at the step's end"));
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(width in 1_usize..200, sent in 0.0_f64..1e7, p99 in 0.0_f64..1e9,
                                              errors: u64, in_flight: usize, name in "\\PC{0,60}") {
            let figures = Figures { sent_rps: sent, p99_us: Some(p99), errors, in_flight, ..FIGURES };
            for seen in [Seen::Preparing, Seen::Processes(64), Seen::Figures(figures)] {
                let mut all = words(&seen);
                all.push(name.clone());
                for line in lay_out(&all, width) {
                    prop_assert!(measure_text_width(&line) <= width, "{:?}", line);
                }
            }
        }
    }
}
