//! ONNX Runtime's own log, as lines of this process's: with the model that a line is about, and on a session's thread with
//! the request that it runs for.
//!
//! In: what the library has to say. Out: events of the target `onnxruntime`. Its warnings are `warn`; what it calls information
//! is of interest to its developers and is `debug`. A request can make it speak in every run: what is said above `debug` is
//! bounded, and how much was left out is said.

use crate::log_budget::LogBudget;
use ort::logging::{LogLevel, LoggerFunction};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const TARGET: &str = "onnxruntime";
/// Lines within one [`WINDOW`] at most.
const MAX_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_secs(1);
/// A run that was ended says so as an error of its last operator, and the session says it too.
const ENDED: &str = "terminate flag";

/// Takes the library's lines.
pub(super) fn logger() -> LoggerFunction {
    let budget = LogBudget::new(MAX_LINES, WINDOW);
    Arc::new(move |level, _category: &str, id: &str, location: &str, message: &str| {
        let level = match level {
            LogLevel::Verbose => Level::TRACE,
            LogLevel::Info => Level::DEBUG,
            _ if message.contains(ENDED) => Level::DEBUG,
            LogLevel::Warning => Level::WARN,
            LogLevel::Error | LogLevel::Fatal => Level::ERROR,
        };
        if level <= Level::WARN {
            let Some(left_out) = budget.spend() else { return };
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
