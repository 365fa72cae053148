//! ONNX Runtime's log, forwarded to this process's log: with the model of a line and, on a session's thread, the
//! current request.
//!
//! In: the library's messages. Out: events of the target `onnxruntime`. Its warnings are `warn`; its information is for
//! its developers and becomes `debug`. A request can cause messages in every run, so lines above `debug` are bounded,
//! and the number left out is logged.

use crate::log_budget::LogBudget;
use ort::logging::{LogLevel, LoggerFunction};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const TARGET: &str = "onnxruntime";
/// Maximum lines within one [`WINDOW`].
const MAX_LINES: u32 = 50;
const WINDOW: Duration = Duration::from_secs(1);
/// Text of an interrupted run's error, reported by its last operator and again by the session.
const ENDED: &str = "terminate flag";

/// Receives the library's messages.
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
                tracing::warn!(target: TARGET, lines = left_out, "omitted lines of ONNX Runtime");
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
    // Sessions are named `NAME/VERSION`; the library itself has no such name.
    let (model, version) = id.split_once('/').unzip();
    match level {
        Level::ERROR => tracing::error!(target: TARGET, model, version, location, "{message}"),
        Level::WARN => tracing::warn!(target: TARGET, model, version, location, "{message}"),
        Level::DEBUG => tracing::debug!(target: TARGET, model, version, location, "{message}"),
        _ => tracing::trace!(target: TARGET, model, version, location, "{message}"),
    }
}
