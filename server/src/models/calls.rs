//! Calls about the server and its models, as the fronts make them: by [`Target`].
//!
//! In: names from clients. Out: models, documents, or a refusal. Knows nothing of HTTP or gRPC.

use crate::models::served_models::Phase;
pub(crate) use crate::models::served_models::shown;
use crate::models::serving::model::Model;
use crate::models::state::ServerState;
use crate::pipeline::refusal::Refusal;
use std::sync::Arc;
use tierlab_protocol::metadata::{
    ConfigDocument, IndexEntry, LoadDocument, ModelMetadata, ServerMetadata, StatsDocument,
};

/// Extensions named in the server's metadata.
const EXTENSIONS: [&str; 5] = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "statistics",
];

/// Model and version named by a client.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Target {
    pub(crate) model: String,
    /// None, or an empty one, for the highest that is served.
    pub(crate) version: Option<String>,
}

impl ServerState {
    /// Metadata of the server.
    pub(crate) fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "tierlab".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        }
    }

    /// The model that is named, or why there is none.
    pub(crate) fn find(&self, target: &Target) -> Result<Arc<Model>, Refusal> {
        self.manager.find(&target.model, target.version.as_deref())
    }

    /// Inputs and outputs of a model, and its served versions.
    pub(crate) fn model_metadata(&self, target: &Target) -> Result<ModelMetadata, Refusal> {
        self.manager.metadata(&target.model, target.version.as_deref())
    }

    /// A model's configuration, in Triton's form.
    pub(crate) fn model_config(&self, target: &Target) -> Result<ConfigDocument, Refusal> {
        self.manager.config(&target.model, target.version.as_deref())
    }

    /// True if the named model accepts requests.
    pub(crate) fn model_ready(&self, target: &Target) -> Result<bool, Refusal> {
        self.find(target).map(|_| self.phase() == Phase::Ready)
    }

    /// The statistics of one version, of all versions of a model, or of all models.
    pub(crate) fn statistics(&self, target: Option<&Target>) -> Result<StatsDocument, Refusal> {
        let model = target.map(|target| target.model.as_str());
        let version = target.and_then(|target| target.version.as_deref());
        self.manager.statistics(model, version)
    }

    /// Every model of the repository, or only those that are served.
    pub(crate) async fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        self.manager.index(ready_only).await
    }

    /// Loads a model by request; `parameters` are the names of those given.
    pub(crate) async fn load_model(&self, name: &str, parameters: &[String]) -> Result<LoadDocument, Refusal> {
        self.manager.load_by_request(name, parameters).await
    }

    /// Stops serving a model by request.
    pub(crate) async fn unload_model(&self, name: &str, parameters: &[String]) -> Result<(), Refusal> {
        self.manager.unload_by_request(name, parameters).await
    }
}
