//! Calls about the models themselves: finding one, the index, loading and unloading. Both fronts make them here.
//!
//! In: names from clients. Out: models, documents, or a refusal. Knows nothing of HTTP or gRPC.

use crate::model::Model;
use crate::refusal::{Reason, Refusal};
use crate::served::{Entry, Phase, Served};
use crate::state::State;
use std::sync::Arc;
use tierlab_protocol::metadata::{IndexEntry, ServerMetadata, StatsDocument};

/// Extensions named in the server's metadata.
const EXTENSIONS: [&str; 4] = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
];

/// What a client names.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Target {
    pub(crate) model: String,
    /// None for the version that the server chooses.
    pub(crate) version: Option<String>,
}

/// A name from a client, shortened for a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(128).collect()
}

impl State {
    /// What the server says of itself.
    pub(crate) fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "tierlab".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: EXTENSIONS.map(str::to_owned).to_vec(),
        }
    }

    /// The model that is named, or why there is none.
    pub(crate) fn find(&self, target: &Target) -> Result<Arc<Model>, Refusal> {
        let Some(served) = self.served() else {
            return Err(Refusal::new(Reason::NotReady, "the models are still being loaded"));
        };
        let unknown = |what: String| Refusal::new(Reason::UnknownModel, what);
        match served.find(&target.model) {
            Some(Entry::Ready(model)) => match &target.version {
                Some(version) if *version != model.version => Err(unknown(format!(
                    "model `{}` has no version `{}`: {} is served",
                    model.name,
                    shown(version),
                    model.version
                ))),
                _ => Ok(Arc::clone(model)),
            },
            Some(Entry::Refused(why)) => Err(Refusal::new(
                Reason::NotReady,
                format!("model `{}` is not served: {why}", target.model),
            )),
            None => Err(unknown(format!("no model `{}`", shown(&target.model)))),
        }
    }

    /// Whether a model that is named takes requests.
    pub(crate) fn model_ready(&self, target: &Target) -> Result<bool, Refusal> {
        self.find(target).map(|_| self.phase() == Phase::Ready)
    }

    /// The statistics of one model, or of all of them.
    pub(crate) fn statistics(&self, target: Option<&Target>) -> Result<StatsDocument, Refusal> {
        let model_stats = match target {
            Some(target) => vec![self.find(target)?.stats_entry()],
            None => {
                let models = self.served().into_iter().flat_map(Served::models);
                models.map(|model| model.stats_entry()).collect()
            }
        };
        Ok(StatsDocument { model_stats })
    }

    /// Every model of the repository, or only those that are served.
    pub(crate) fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let entries = self.served().into_iter().flat_map(Served::entries);
        let line = |(name, entry): (&str, &Entry)| {
            let (version, state, reason) = match entry {
                Entry::Ready(model) => (model.version.clone(), "READY", String::new()),
                Entry::Refused(why) => (String::new(), "UNAVAILABLE", why.clone()),
            };
            IndexEntry {
                name: name.to_owned(),
                version,
                state: state.to_owned(),
                reason,
            }
        };
        let ready = |entry: &IndexEntry| !ready_only || entry.state == "READY";
        entries.map(line).filter(ready).collect()
    }

    /// Loads a model, or its newest version, by request.
    pub(crate) async fn load_model(&self, name: &str) -> Result<(), Refusal> {
        Err(fixed(name))
    }

    /// Stops serving a model by request.
    pub(crate) async fn unload_model(&self, name: &str) -> Result<(), Refusal> {
        Err(fixed(name))
    }
}

fn fixed(name: &str) -> Refusal {
    Refusal::bad(format!(
        "model `{}` cannot be loaded or unloaded by request: the models are chosen at the start, by `models` in \
         server.toml",
        shown(name)
    ))
}
