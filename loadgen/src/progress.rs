//! Progress display of a run. In: steps begun and finished, and counters of the current step. Out, on stderr: on a
//! terminal a bar with a fixed end, the time to go, the leader and the step's figures, redrawn by a separate thread
//! ([`tierlab_load::live`] explains why that does not disturb the measurement); plain lines elsewhere.

use console::{Term, measure_text_width, truncate_str};
use indicatif::ProgressBar;
use std::time::{Duration, Instant};
use tierlab_instrument::progress::{OVER_STEPS, bar, pace, remaining, restyle};
use tierlab_instrument::units::wait;
use tierlab_load::live::{Seen, View, Watch};

/// Bar over a limited time.
const OVER_TIME: &str = "{msg}\n{wide_bar}  {elapsed}";

/// Progress of one run: over its planned steps, or over a limited time while the number of steps is unknown.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// View of the current step.
    view: Option<View>,
    started: Instant,
    expected_step: Duration,
    /// Planned steps; their number stays.
    steps: u32,
    /// Planned steps that are finished or skipped.
    done: u32,
    /// Steps to come that are not planned: repeated ones, and those of a search or a question.
    unplanned: u32,
    /// Finished steps, planned or not.
    measured: u32,
    /// Search after the planned steps.
    search_limit: Option<Duration>,
    /// Limited time under way.
    limit: Option<TimeLimit>,
    /// Variant that is the likeliest answer so far.
    leader: Option<String>,
    /// True if finished steps stay on a terminal.
    verbose: bool,
}

/// A limited time.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    start: Instant,
    deadline: Instant,
}

impl TimeLimit {
    fn remaining(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Progress {
    /// Starts the display of `steps` planned steps, each expected to take `expected_step`, and of a search of at most
    /// `search_limit` after them.
    pub fn new(steps: u32, expected_step: Duration, search_limit: Option<Duration>, verbose: bool) -> Self {
        let bar = bar(steps);
        if bar.is_none() && steps > 0 {
            eprintln!("{steps} steps, about {}", wait(expected_step * steps));
        }
        Self {
            bar,
            view: None,
            started: Instant::now(),
            expected_step,
            steps,
            done: 0,
            unplanned: 0,
            measured: 0,
            search_limit,
            limit: None,
            leader: None,
            verbose,
        }
    }

    /// Adds steps beside the planned ones.
    pub fn add_steps(&mut self, steps: u32) {
        self.unplanned += steps;
    }

    /// Counts the time until `deadline` instead of steps. Later calls change nothing until [`Progress::end_limit`].
    pub fn begin_limit(&mut self, deadline: Instant) {
        if self.limit.is_some() {
            return;
        }
        let limit = TimeLimit {
            start: Instant::now(),
            deadline,
        };
        self.limit = Some(limit);
        match &self.bar {
            Some(bar) => {
                bar.set_length(deadline.saturating_duration_since(limit.start).as_secs());
                bar.set_position(0);
                restyle(bar, OVER_TIME);
            }
            None => eprintln!("measuring for at most {}", wait(limit.remaining())),
        }
    }

    /// Counts planned steps again.
    pub fn end_limit(&mut self) {
        self.limit = None;
        self.unplanned = 0;
        if let Some(bar) = &self.bar {
            bar.set_length(self.steps.into());
            bar.set_position(self.done.into());
            restyle(bar, OVER_STEPS);
        }
    }

    /// Shows the likeliest answer so far.
    pub fn set_leader(&mut self, variant: Option<&str>) {
        self.leader = variant.map(str::to_owned);
    }

    /// Starts a step and returns a watch on its progress. `waited` is the time spent between steps, which is not theirs.
    pub fn begin(&mut self, label: &str, waited: Duration) -> Watch {
        self.view = None;
        let Some(bar) = self.bar.clone() else {
            return Watch::default();
        };
        let (status, limit, label, start) = (self.status(waited), self.limit, label.to_owned(), Instant::now());
        let draw = move |seen: Seen| {
            let width = usize::from(Term::stderr().size().1);
            let mut lines = lay_out(&[status(start.elapsed()), label.clone()], width);
            lines.extend(lay_out(&describe(&seen), width));
            if let Some(limit) = limit {
                bar.set_position(limit.start.elapsed().as_secs());
            }
            bar.set_message(lines.join("\n"));
        };
        let watch = Watch::on();
        // A bar without figures is still useful.
        self.view = View::start(&watch, draw).ok();
        watch
    }

    /// Counts a step that was finished before.
    pub fn skip(&mut self) {
        self.count();
    }

    /// Ends the current step and shows `line`; `waited` as in [`Progress::begin`].
    pub fn finish(&mut self, line: &str, waited: Duration) {
        self.view = None;
        self.measured += 1;
        let at = match self.count() {
            true => format!("{}/{}", self.done, self.steps),
            false => wait(self.started.elapsed()),
        };
        if self.bar.is_none() || self.verbose {
            self.print(&format!("[{at}] {line}"));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.status(waited)(Duration::ZERO));
        }
    }

    /// Counts a step; true if it was planned.
    fn count(&mut self) -> bool {
        let is_planned = self.unplanned == 0;
        if !is_planned {
            self.unplanned -= 1;
            return false;
        }
        self.done += 1;
        if let (Some(bar), None) = (&self.bar, self.limit) {
            bar.inc(1);
        }
        true
    }

    /// Returns the time that the run still takes and its likeliest answer, as a text for a time since the current step's start.
    fn status(&self, waited: Duration) -> impl Fn(Duration) -> String + use<> {
        let left = self.steps.saturating_sub(self.done) + self.unplanned;
        let measuring = self.started.elapsed().saturating_sub(waited);
        let (step, left) = pace(self.measured, self.measured + left, measuring, self.expected_step);
        let (limit, search_limit) = (self.limit, self.search_limit);
        let leader = self.leader.as_ref();
        let leader_note = leader.map_or_else(String::new, |leader| format!(", {leader} leads"));
        move |in_step| {
            let eta = wait(remaining(step, left, in_step));
            match (limit, search_limit) {
                (Some(limit), _) => format!("at most {} to go{leader_note}", wait(limit.remaining())),
                (None, None) => format!("ETA {eta}{leader_note}"),
                (None, Some(search)) => format!("ETA {eta}, then a search of at most {}{leader_note}", wait(search)),
            }
        }
    }

    /// Prints a line above the bar.
    pub fn print(&self, line: &str) {
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

/// Describes the state of a step, in phrases that each may have a line of their own.
fn describe(seen: &Seen) -> Vec<String> {
    let figures = match seen {
        Seen::Preparing => return vec!["preparing requests and starting users".into()],
        Seen::Processes(processes) => {
            let sent = format!("sent by {processes} processes");
            return vec![sent, "figures follow at the step's end".into()];
        }
        Seen::Figures(figures) => figures,
    };
    let mut phrases = vec![
        format!("sent {}/s", short(figures.sent_rps)),
        format!("answered {}/s", short(figures.answered_rps)),
    ];
    match (figures.p50_us, figures.p99_us) {
        (Some(p50), Some(p99)) => {
            phrases.extend([("p50", p50), ("p99", p99)].map(|(name, us)| format!("{name} {} ms", short(us / 1e3))));
        }
        _ => phrases.push("no reply in the window yet".into()),
    }
    phrases.push(format!("{} errors", figures.errors));
    phrases.push(format!("{} in flight", figures.in_flight));
    phrases
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
fn lay_out(phrases: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for phrase in phrases {
        match lines.last_mut() {
            Some(line) if measure_text_width(line) + 2 + measure_text_width(phrase) <= width => {
                line.push_str("  ");
                line.push_str(phrase);
            }
            _ => lines.push(truncate_str(phrase, width, "…").into_owned()),
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
    fn the_end_is_told_and_does_not_move_away() {
        let seconds = Duration::from_secs;
        let mut progress = Progress::new(10, seconds(3), Some(seconds(300)), false);
        let told = |progress: &Progress| progress.status(Duration::ZERO)(Duration::ZERO);
        assert_eq!(told(&progress), "ETA 30s, then a search of at most 5m00s");
        progress.add_steps(40);
        assert_eq!(progress.steps, 10);
        progress.begin_limit(Instant::now() + seconds(3_599));
        progress.begin_limit(Instant::now() + seconds(9_999));
        progress.set_leader(Some("nvme"));
        let text = told(&progress);
        assert!(
            text.starts_with("at most 59m") && text.ends_with(" to go, nvme leads"),
            "{text}"
        );
        progress.skip();
        assert_eq!((progress.done, progress.unplanned), (0, 39));
        progress.end_limit();
        progress.skip();
        assert_eq!(progress.done, 1);
        let mut repeated = Progress::new(1, seconds(3), None, false);
        repeated.skip();
        repeated.add_steps(1);
        assert_eq!(told(&repeated), "ETA 3s");
    }

    #[test]
    fn a_wait_between_steps_does_not_change_the_time_to_go() {
        let minutes = Duration::from_mins;
        let mut progress = Progress::new(10, minutes(5), None, false);
        progress.skip();
        progress.skip();
        progress.measured = 2;
        progress.started = Instant::now().checked_sub(minutes(80)).unwrap();
        let eta = |waited| progress.status(minutes(waited))(Duration::ZERO);
        // Two steps of 10 minutes beside a wait of an hour; eight are left.
        assert_eq!(eta(60), "ETA 1h20m");
        assert_eq!(eta(0), "ETA 5h20m");
    }

    #[test]
    fn figures_stand_in_one_line_where_there_is_room_and_in_more_where_there_is_not() {
        let words = describe(&Seen::Figures(FIGURES));
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
        let text = |seen: Seen| describe(&seen).join(" ");
        assert!(text(Seen::Figures(none)).contains("no reply in the window yet"));
        assert!(!text(Seen::Figures(none)).contains("p50"));
        assert!(text(Seen::Processes(4)).contains("4 processes figures follow at the step's end"));
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(width in 1_usize..200, sent in 0.0_f64..1e7, p99 in 0.0_f64..1e9,
                                              errors: u64, in_flight: usize, name in "\\PC{0,60}") {
            let figures = Figures { sent_rps: sent, p99_us: Some(p99), errors, in_flight, ..FIGURES };
            for seen in [Seen::Preparing, Seen::Processes(64), Seen::Figures(figures)] {
                let mut all = describe(&seen);
                all.push(name.clone());
                for line in lay_out(&all, width) {
                    prop_assert!(measure_text_width(&line) <= width, "{:?}", line);
                }
            }
        }
    }
}
