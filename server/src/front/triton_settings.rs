//! Triton's settings calls, answered with this server's settings. None can be changed while the server runs.
//!
//! In: changes that a client requests. Out: the current settings, or a refusal that says where they are set.

use crate::request::Refusal;
use serde_json::{Map, Value, json};
use tracing::level_filters::LevelFilter;

/// Settings by name: current, or requested by a client.
pub(crate) type Settings = Map<String, Value>;

/// Triton's trace settings. Spans are exported as the configuration says; Triton's trace files are not written.
pub(crate) fn trace() -> Settings {
    let settings = json!({"trace_level": ["OFF"], "trace_rate": "0", "trace_count": "-1", "log_frequency": "0"});
    settings.as_object().cloned().unwrap_or_default()
}

/// Accepts a change without effect: `OFF`, and `null`, which requests the default.
pub(crate) fn change_trace(wanted: &Settings) -> Result<Settings, Refusal> {
    let same = |value: &Value| value.is_null() || *value == "OFF" || *value == json!(["OFF"]);
    match wanted.iter().find(|(_, value)| !same(value)) {
        None => Ok(trace()),
        Some((name, _)) => Err(Refusal::bad(format!(
            "trace setting `{name}` cannot be changed: Triton's trace files are not supported"
        ))),
    }
}

/// Triton's log settings, derived from the log's filter.
pub(crate) fn log() -> Settings {
    let level = LevelFilter::current();
    let settings = json!({
        "log_file": "",
        "log_info": level >= LevelFilter::INFO,
        "log_warning": level >= LevelFilter::WARN,
        "log_error": level >= LevelFilter::ERROR,
        "log_verbose_level": u32::from(level >= LevelFilter::DEBUG) + u32::from(level >= LevelFilter::TRACE),
        "log_format": "default",
    });
    settings.as_object().cloned().unwrap_or_default()
}

/// Accepts a change without effect.
pub(crate) fn change_log(wanted: &Settings) -> Result<Settings, Refusal> {
    let now = log();
    match wanted.iter().find(|(name, value)| now.get(*name) != Some(value)) {
        None => Ok(now),
        Some((name, _)) => Err(Refusal::bad(format!(
            "log setting `{name}` cannot be changed by request: set RUST_LOG at the start"
        ))),
    }
}

/// Refusal for a client that tries to register shared memory.
pub(crate) fn no_shared_memory() -> Refusal {
    Refusal::bad("shared memory is not supported: send tensors in the request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(name: &str, value: Value) -> Settings {
        Settings::from_iter([(name.to_owned(), value)])
    }

    #[test]
    fn only_changes_that_change_nothing_are_taken() {
        assert!(change_trace(&changes("trace_level", json!(["OFF"]))).is_ok());
        assert!(change_trace(&changes("trace_rate", Value::Null)).is_ok());
        let refused = change_trace(&changes("trace_level", json!(["TIMESTAMPS"]))).unwrap_err();
        assert!(refused.message.contains("trace_level"));
        assert!(change_log(&Settings::new()).is_ok());
        assert!(change_log(&changes("log_format", "default".into())).is_ok());
        let refused = change_log(&changes("log_verbose_level", 9.into())).unwrap_err();
        assert!(refused.message.contains("log_verbose_level"));
    }
}
