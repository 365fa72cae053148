//! Triton's settings calls, answered with what is true here: nothing of it can be changed while the server runs.
//!
//! In: changes that a client asks for. Out: the settings as they are, or a refusal that says where they are set.

use crate::request::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;
use tracing::level_filters::LevelFilter;

/// Settings that a client wants changed, by name.
pub(crate) type Changes = BTreeMap<String, serde_json::Value>;

/// Triton's trace settings. Spans are exported as the configuration says; Triton's trace files are not written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Trace {
    pub(crate) trace_level: [&'static str; 1],
    pub(crate) trace_rate: &'static str,
    pub(crate) trace_count: &'static str,
    pub(crate) log_frequency: &'static str,
}

impl Trace {
    pub(crate) fn current() -> Self {
        Self {
            trace_level: ["OFF"],
            trace_rate: "0",
            trace_count: "-1",
            log_frequency: "0",
        }
    }

    /// Takes a change that changes nothing: `OFF`, and `null`, which asks for the default.
    pub(crate) fn change(changes: &Changes) -> Result<Self, Refusal> {
        let same =
            |value: &serde_json::Value| value.is_null() || *value == "OFF" || *value == serde_json::json!(["OFF"]);
        match changes.iter().find(|(_, value)| !same(value)) {
            None => Ok(Self::current()),
            Some((name, _)) => Err(Refusal::bad(format!(
                "trace setting `{name}` cannot be changed: trace files as Triton writes them are not supported"
            ))),
        }
    }
}

/// Triton's log settings, read off the log's filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Log {
    pub(crate) log_file: &'static str,
    pub(crate) log_info: bool,
    pub(crate) log_warning: bool,
    pub(crate) log_error: bool,
    pub(crate) log_verbose_level: u32,
    pub(crate) log_format: &'static str,
}

impl Log {
    pub(crate) fn current() -> Self {
        let level = LevelFilter::current();
        Self {
            log_file: "",
            log_info: level >= LevelFilter::INFO,
            log_warning: level >= LevelFilter::WARN,
            log_error: level >= LevelFilter::ERROR,
            log_verbose_level: u32::from(level >= LevelFilter::DEBUG) + u32::from(level >= LevelFilter::TRACE),
            log_format: "default",
        }
    }

    /// Takes a change that changes nothing.
    pub(crate) fn change(changes: &Changes) -> Result<Self, Refusal> {
        let log = Self::current();
        let now = serde_json::to_value(&log).unwrap_or_default();
        match changes.iter().find(|(name, value)| now.get(name) != Some(value)) {
            None => Ok(log),
            Some((name, _)) => Err(Refusal::bad(format!(
                "log setting `{name}` cannot be changed by request: RUST_LOG sets the log's level at the start"
            ))),
        }
    }
}

/// The answer to a client that wants to register shared memory.
pub(crate) fn no_shared_memory() -> Refusal {
    Refusal::bad("shared memory is not supported: send tensors in the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(name: &str, value: serde_json::Value) -> Changes {
        Changes::from([(name.to_owned(), value)])
    }

    #[test]
    fn only_changes_that_change_nothing_are_taken() {
        assert!(Trace::change(&changes("trace_level", serde_json::json!(["OFF"]))).is_ok());
        assert!(Trace::change(&changes("trace_rate", serde_json::Value::Null)).is_ok());
        let refused = Trace::change(&changes("trace_level", serde_json::json!(["TIMESTAMPS"]))).unwrap_err();
        assert!(refused.message.contains("trace_level"));
        assert!(Log::change(&Changes::new()).is_ok());
        assert!(Log::change(&changes("log_format", "default".into())).is_ok());
        let refused = Log::change(&changes("log_verbose_level", 9.into())).unwrap_err();
        assert!(refused.message.contains("log_verbose_level"));
    }
}
