//! Progress over bytes: a bar with ETA on a terminal, plain lines elsewhere. Written to stderr.

use indicatif::{DecimalBytes, HumanDuration, ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Minimum interval between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of one task.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: u64,
    done: u64,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts the progress over `total` bytes.
    pub fn bytes(label: &str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total).with_message(label.to_owned());
            let style = "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left";
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let now = Instant::now();
        Self {
            label: label.to_owned(),
            total,
            done: 0,
            started: now,
            last_line: now,
            bar,
        }
    }

    /// Counts bytes as done.
    pub fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            self.print_line();
        }
    }

    /// Prints the current activity, everywhere.
    pub fn show(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => eprintln!("{what}"),
        }
    }

    /// Shows the current activity on a terminal only.
    pub fn show_on_terminal(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn print_line(&self) {
        let (label, done, total) = (&self.label, self.done, self.total);
        let rate = done as f64 / self.seconds().max(1e-9);
        let left = Duration::from_secs_f64(total.saturating_sub(done) as f64 / rate.max(1.0));
        let percent = done * 100 / total.max(1);
        let (left, rate) = (HumanDuration(left), DecimalBytes(rate as u64));
        let (done, total) = (DecimalBytes(done), DecimalBytes(total));
        eprintln!("{label}: {done} of {total} ({percent} %), {rate}/s, {left} left");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Formats bytes, as `5.1 GB`.
pub fn human_bytes(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}
