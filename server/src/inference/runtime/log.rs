//! ONNX Runtime's own log, as lines of this process's: with the model that a line is about, and on a session's thread with
//! the request that it runs for.
//!
//! In: what the library has to say. Out: events of the target `onnxruntime`. Its warnings are `warn`; what it calls information
//! is of interest to its developers and is `debug`. A request can make it speak in every run: what is said above `debug` is
//! bounded, and how much was left out is said.

use ort::logging::{LogLevel, LoggerFunction};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::Level;

const TARGET: &str = "onnxruntime";
/// Lines within one [`WINDOW`] at most.
const MAX_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_secs(1);
/// A run that was ended says so as an error of its last operator, and the session says it too.
const ENDED: &str = "terminate flag";

/// Takes the library's lines.
pub(super) fn logger() -> LoggerFunction {
    let budget = Mutex::new(Budget::default());
    Arc::new(move |level, _category: &str, id: &str, location: &str, message: &str| {
        let level = match level {
            LogLevel::Verbose => Level::TRACE,
            LogLevel::Info => Level::DEBUG,
            _ if message.contains(ENDED) => Level::DEBUG,
            LogLevel::Warning => Level::WARN,
            LogLevel::Error | LogLevel::Fatal => Level::ERROR,
        };
        if level <= Level::WARN {
            let spent = budget
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .spend(Instant::now());
            let Some(left_out) = spent else { return };
            if left_out > 0 {
                tracing::warn!(target: TARGET, lines = left_out, "lines of ONNX Runtime were left out");
            }
        }
        say(level, id, location, message);
    })
}

/// ONNX Runtime's log level, from the log's filter.
pub(super) fn level() -> LogLevel {
    if tracing::enabled!(target: TARGET, Level::TRACE) {
        LogLevel::Verbose
    } else if tracing::enabled!(target: TARGET, Level::DEBUG) {
        LogLevel::Info
    } else if tracing::enabled!(target: TARGET, Level::WARN) {
        LogLevel::Warning
    } else {
        LogLevel::Error
    }
}

fn say(level: Level, id: &str, location: &str, message: &str) {
    // Sessions are called `NAME/VERSION`; the library itself has no such name.
    let (model, version) = id.split_once('/').unzip();
    match level {
        Level::ERROR => tracing::error!(target: TARGET, model, version, location, "{message}"),
        Level::WARN => tracing::warn!(target: TARGET, model, version, location, "{message}"),
        Level::DEBUG => tracing::debug!(target: TARGET, model, version, location, "{message}"),
        _ => tracing::trace!(target: TARGET, model, version, location, "{message}"),
    }
}

/// Lines said in the current window, and those left out since the last one that was said.
#[derive(Debug, Default)]
struct Budget {
    began: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Budget {
    /// Returns the number of suppressed lines before this one if it may be logged.
    fn spend(&mut self, now: Instant) -> Option<u64> {
        if self
            .began
            .is_none_or(|began| now.saturating_duration_since(began) >= WINDOW)
        {
            self.began = Some(now);
            self.said = 0;
        }
        if self.said >= MAX_LINES {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_in_every_run_is_bounded_and_counted() {
        let mut budget = Budget::default();
        let now = Instant::now();
        let said = (0..MAX_LINES + 7).filter(|_| budget.spend(now).is_some()).count();
        assert_eq!(said, MAX_LINES as usize);
        assert_eq!(budget.spend(now + WINDOW), Some(7));
        assert_eq!(budget.spend(now + WINDOW), Some(0));
    }
}
