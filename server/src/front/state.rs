//! State shared by the fronts: the pipeline, the models with their management, and the phase.

use crate::models::management::ModelManager;
use crate::models::served_models::Target;
use crate::pipeline::Pipeline;
use crate::request::Refusal;
use crate::telemetry::Metrics;
use prometheus::Registry;
use std::sync::Arc;
use tierlab_protocol::grpc::messages::ServerMetadataResponse;
use tokio::sync::watch;

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
    pub(crate) fn drain_begins(&self) -> impl Future<Output = ()> + Send + use<> {
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
