//! State shared by the fronts: the pipeline, the models with their management, and the phase; and Triton's settings
//! calls, answered with this server's settings, none of which can be changed while the server runs.

use crate::models::management::ModelManager;
use crate::models::served_models::Target;
use crate::pipeline::Pipeline;
use crate::request::Refusal;
use crate::telemetry::Metrics;
use prometheus::Registry;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tierlab_protocol::grpc::messages::ServerMetadataResponse;
use tokio::sync::watch;
use tracing::level_filters::LevelFilter;

/// Extensions named in the server's metadata.
const EXTENSIONS: [&str; 6] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "statistics",
];

/// Shared state of the fronts.
pub(crate) type SharedState = Arc<ServerState>;

/// Phase of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Models are being loaded.
    Loading,
    /// Requests are accepted.
    Ready,
    /// No new connections are accepted; admitted requests are finished.
    Draining,
}

pub(crate) struct ServerState {
    pub(crate) pipeline: Pipeline,
    pub(crate) registry: Registry,
    /// Models; used by every call that finds, lists, loads or unloads them.
    pub(crate) manager: Arc<ModelManager>,
    /// True once no new connections are accepted.
    pub(crate) draining: watch::Sender<bool>,
}

impl ServerState {
    pub(crate) fn phase(&self) -> Phase {
        if *self.draining.borrow() {
            Phase::Draining
        } else if self.manager.started() {
            Phase::Ready
        } else {
            Phase::Loading
        }
    }

    /// Ends when the server begins to drain.
    pub(crate) fn drain_started(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut draining = self.draining.subscribe();
        async move {
            let _ = draining.wait_for(|draining| *draining).await;
        }
    }

    /// True if the named model accepts requests.
    pub(crate) fn model_ready(&self, target: &Target) -> Result<bool, Refusal> {
        self.manager.find(target).map(|_| self.phase() == Phase::Ready)
    }

    /// Metadata of the server.
    pub(crate) fn server_metadata(&self) -> ServerMetadataResponse {
        ServerMetadataResponse {
            name: "tierlab".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.pipeline.metrics
    }
}

/// Settings by name: current, or requested by a client.
pub(crate) type Settings = Map<String, Value>;

/// Triton's trace settings. Spans are exported as the configuration says; Triton's trace files are not written.
pub(crate) fn trace_settings() -> Settings {
    let settings = json!({"trace_level": ["OFF"], "trace_rate": "0", "trace_count": "-1", "log_frequency": "0"});
    settings.as_object().cloned().unwrap_or_default()
}

/// Accepts a change without effect: `OFF`, and `null`, which requests the default.
pub(crate) fn change_trace(wanted: &Settings) -> Result<Settings, Refusal> {
    let same = |value: &Value| value.is_null() || *value == "OFF" || *value == json!(["OFF"]);
    match wanted.iter().find(|(_, value)| !same(value)) {
        None => Ok(trace_settings()),
        Some((name, _)) => Err(Refusal::bad(format!(
            "trace setting `{name}` cannot be changed: Triton's trace files are not supported"
        ))),
    }
}

/// Triton's log settings, derived from the log's filter.
pub(crate) fn log_settings() -> Settings {
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
    let now = log_settings();
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
