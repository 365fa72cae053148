//! Models of a server, and their changes: at the start, by request, or by the contents of the model tier.
//!
//! In: names and versions. Out: models, documents, or refusals. Reading takes no lock: the models are an immutable
//! snapshot ([`ServedModels`]) that every change replaces.

mod reconcile;

use crate::error::LoadError;
use crate::models::loading::Loader;
use crate::models::repository::{self, Listing};
use crate::models::served_models::{ServedModel, ServedModels, Target, shorten};
use crate::models::serving::Model;
use crate::request::{Reason, Refusal};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use reconcile::Reload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tierlab_protocol::grpc::messages::{ModelConfig, ModelIndex, ModelStatisticsResponse};
use tierlab_protocol::metadata::{LoadDocument, ModelMetadata};
use tokio::sync::Semaphore;

/// Control mode, in Triton's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ControlMode {
    /// Only at the start.
    #[default]
    None,
    /// By load and unload calls.
    Explicit,
    /// By listing the models on the tier at an interval.
    Poll,
}

/// `[repository]`, `[admin]`, `models` and the drain time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagementSettings {
    pub(crate) control: ControlMode,
    /// Interval between two listings of the tier in [`ControlMode::Poll`].
    pub(crate) poll_interval: Duration,
    /// True if load and unload calls are answered.
    pub(crate) admin: bool,
    /// Models to serve. Empty means all, or none in explicit control; [`ALL_MODELS`] means all in any mode.
    pub(crate) models: Vec<String>,
    /// Keys that override those of models' own configs, by model.
    pub(crate) model_configs: BTreeMap<String, toml::Table>,
    /// Maximum time that an unload waits for its requests.
    pub(crate) drain: Duration,
    /// Configuration file of the model tier, for advice.
    pub(crate) tier_file: PathBuf,
}

/// Name for all models in [`ManagementSettings::models`].
pub(crate) const ALL_MODELS: &str = "*";

/// Maximum models loaded at the same time: each holds its files in memory until its sessions are built.
const MAX_PARALLEL_LOADS: usize = 2;

/// Minimum interval between two listings of the tier for the index.
const LISTING_AGE: Duration = Duration::from_secs(1);

/// Models of a server.
pub(crate) struct ModelManager {
    settings: ManagementSettings,
    served: ArcSwap<ServedModels>,
    loader: OnceLock<Loader>,
    started: OnceLock<()>,
    /// Locks that allow one change of a model at a time.
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    loads: Semaphore,
    /// Names on the tier, and when they were read.
    names: tokio::sync::Mutex<Option<(Instant, Vec<String>)>>,
}

impl ModelManager {
    pub(crate) fn new(settings: ManagementSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            served: ArcSwap::default(),
            loader: OnceLock::new(),
            started: OnceLock::new(),
            locks: Mutex::default(),
            loads: Semaphore::new(MAX_PARALLEL_LOADS),
            names: tokio::sync::Mutex::default(),
        })
    }

    /// True if a model on the tier is served without a load call.
    fn selects(&self, name: &str) -> bool {
        let selected = &self.settings.models;
        let every = selected.is_empty() && self.settings.control != ControlMode::Explicit;
        every || selected.iter().any(|model| model == ALL_MODELS || model == name)
    }

    /// True if startup is complete.
    pub(crate) fn started(&self) -> bool {
        self.started.get().is_some()
    }

    /// Current models.
    pub(crate) fn snapshot(&self) -> Arc<ServedModels> {
        self.served.load_full()
    }

    /// Model named by a request. Without a version, or with an empty one, the highest served version.
    ///
    /// # Errors
    /// Fails for an unknown model or version, or one that is not served.
    pub(crate) fn find(&self, target: &Target) -> Result<Arc<Model>, Refusal> {
        let found = self.served.load().find(target).map(Arc::clone);
        found.map_err(|refusal| self.check_started().err().unwrap_or(refusal))
    }

    /// Checks that the start is complete: before, a model that is not loaded yet is not ready rather than unknown.
    fn check_started(&self) -> Result<(), Refusal> {
        let starting = || Refusal::new(Reason::NotReady, "the models are still being loaded");
        self.started.get().copied().ok_or_else(starting)
    }

    /// `GET /v2/models/M[/versions/V]`.
    ///
    /// # Errors
    /// Same as [`ModelManager::find`].
    pub(crate) fn metadata(&self, target: &Target) -> Result<ModelMetadata, Refusal> {
        let model = self.find(target)?;
        Ok(model.metadata(self.snapshot().entry(&target.model)?.ready_versions()))
    }

    /// `GET /v2/models/M[/versions/V]/config`.
    ///
    /// # Errors
    /// Same as [`ModelManager::find`].
    pub(crate) fn config(&self, target: &Target) -> Result<ModelConfig, Refusal> {
        Ok(self.find(target)?.config_document())
    }

    /// `GET /v2/models/stats`, for one model (every served version) or one version.
    ///
    /// # Errors
    /// Same as [`ModelManager::find`].
    pub(crate) fn statistics(&self, target: Option<&Target>) -> Result<ModelStatisticsResponse, Refusal> {
        let served = self.snapshot();
        let model_stats = match target {
            None => served.models().map(|model| model.stats_entry()).collect(),
            Some(target) if target.version().is_some() => vec![self.find(target)?.stats_entry()],
            Some(target) => {
                self.find(target)?;
                let versions = served.entry(&target.model)?.ready();
                versions.map(|model| model.stats_entry()).collect()
            }
        };
        Ok(ModelStatisticsResponse { model_stats })
    }

    /// `POST /v2/repository/index`: every version that was loaded, refused or unloaded and, in explicit control, the
    /// other models on the tier.
    pub(crate) async fn index(&self, ready_only: bool) -> Vec<ModelIndex> {
        let mut index = self.snapshot().index();
        if ready_only {
            index.retain(|entry| entry.state == "READY");
            return index;
        }
        if self.settings.control == ControlMode::Explicit {
            let mut others = self.names().await;
            others.retain(|name| !index.iter().any(|entry| entry.name == *name));
            index.extend(others.into_iter().map(|name| ModelIndex {
                name,
                ..ModelIndex::default()
            }));
            index.sort_by(|a, b| a.name.cmp(&b.name));
        }
        index
    }

    /// Names on the tier, at most a second old; if the tier fails, the last ones read.
    async fn names(&self) -> Vec<String> {
        let mut names = self.names.lock().await;
        let fresh = names.as_ref().is_some_and(|(read, _)| read.elapsed() < LISTING_AGE);
        if let (false, Some(loader)) = (fresh, self.loader.get()) {
            match repository::list(&*loader.tier, None).await {
                Ok(listing) => *names = Some((Instant::now(), listing.into_keys().collect())),
                Err(error) => tracing::warn!(%error, "cannot list the models on the tier"),
            }
        }
        names.as_ref().map(|(_, names)| names.clone()).unwrap_or_default()
    }

    /// Checks that models may be loaded and unloaded by request. Every check before a load or unload is made here.
    ///
    /// # Errors
    /// The reason, with the key to set.
    pub(crate) fn allow_change(&self, name: &str) -> Result<(), Refusal> {
        if !self.settings.admin {
            let message =
                "loading and unloading by request is disabled: set `enabled = true` under `[admin]` in server.toml";
            return Err(Refusal::new(Reason::Forbidden, message));
        }
        let control = match self.settings.control {
            ControlMode::Explicit => return Ok(()),
            ControlMode::None => "none",
            ControlMode::Poll => "poll",
        };
        Err(Refusal::bad(format!(
            "model `{}` cannot be loaded or unloaded by request: `repository.control` in server.toml is `{control}`, \
             not `explicit`",
            shorten(name)
        )))
    }

    /// Waits until no other change of this model is in progress.
    async fn lock_model(&self, name: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(name.to_owned()).or_default())
        };
        lock.lock_owned().await
    }

    /// Replaces the snapshot with one in which an entry is changed.
    fn edit(&self, name: &str, change: impl Fn(&mut ServedModel)) {
        self.served.rcu(|served| {
            let mut served = (**served).clone();
            change(Arc::make_mut(served.0.entry(name.to_owned()).or_default()));
            served
        });
    }

    /// Removes an unloaded model.
    fn forget(&self, name: &str) {
        self.served.rcu(|served| {
            let mut served = (**served).clone();
            served.0.remove(name);
            served
        });
    }
}

impl ModelManager {
    /// Loads the models served from the start. Call it once.
    ///
    /// # Errors
    /// Fails if a model requested by name cannot be served or, in control [`ControlMode::None`], if there is nothing to
    /// serve.
    pub(crate) async fn start(self: &Arc<Self>, loader: Loader) -> Result<(), LoadError> {
        let mut listing = repository::list(&*loader.tier, None).await?;
        let location = loader.tier.info().location;
        let chosen = self.choose(&listing, &location)?;
        let configured = self.settings.model_configs.keys();
        for name in configured.filter(|&name| !listing.contains_key(name)) {
            tracing::warn!(model = %name, "`model_config` has keys for a model that is not on the tier");
        }
        if self.loader.set(loader).is_err() {
            return Err(LoadError::new("the models are already loaded"));
        }
        for name in chosen {
            let _lock = self.lock_model(&name).await;
            let Err(error) = self.reconcile(&name, &listing[&name], Reload::Always).await else {
                continue;
            };
            // A model requested by name must be served.
            if self.settings.models.contains(&name) {
                let detailed = format!("model `{name}` is refused: {}", error.for_operator());
                return Err(LoadError::new(format!("model `{name}` is refused: {error}")).with_detail(detailed));
            }
            tracing::error!(model = %name, error = error.for_operator(), "model refused; serving the others");
            if error.transient {
                listing.remove(&name);
            }
        }
        if self.settings.control == ControlMode::None && self.snapshot().models().next().is_none() {
            let refused = self.snapshot().index().into_iter();
            let reasons: String = refused
                .map(|entry| format!("\n  {}: {}", entry.name, entry.reason))
                .collect();
            return Err(LoadError::new(format!("no model can be served:{reasons}")));
        }
        let _ = self.started.set(());
        if self.settings.control == ControlMode::Poll {
            tokio::spawn(poll(Arc::downgrade(self), self.settings.poll_interval, listing));
        }
        Ok(())
    }

    /// Chooses the models to load at the start.
    fn choose(&self, listing: &Listing, location: &str) -> Result<Vec<String>, LoadError> {
        let wanted = &self.settings.models;
        if listing.is_empty() {
            let message = format!(
                "no model on the model tier ({location}): run in the server's working directory `tierlab-models generate \
                 --model mlp && tierlab-models publish --to {}`, or publish your own",
                self.settings.tier_file.display()
            );
            if self.settings.control == ControlMode::None {
                return Err(LoadError::new(message));
            }
            tracing::warn!("{message}");
        }
        let is_missing = |name: &&String| *name != ALL_MODELS && !listing.contains_key(*name);
        if let Some(name) = wanted.iter().find(is_missing) {
            let names = listing.keys().cloned().collect::<Vec<_>>().join(", ");
            let message = format!("unknown model `{name}`: the model tier ({location}) has {names}");
            return Err(LoadError::new(message));
        }
        Ok(listing.keys().filter(|name| self.selects(name)).cloned().collect())
    }

    /// `POST /v2/repository/models/M/load`: reads the model from the tier again, even if it is served, and replaces the
    /// served versions. Continues if the caller goes away. `parameters` are the names of the given ones.
    ///
    /// # Errors
    /// Fails if the call is not allowed, if a parameter is not supported, or if the model is missing or cannot be
    /// served; served versions then continue.
    pub(crate) async fn load_by_request(
        self: &Arc<Self>,
        name: &str,
        parameters: &[String],
    ) -> Result<LoadDocument, Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.first() {
            return Err(Refusal::bad(format!(
                "unsupported parameter `{}`: a model's config and files are only read from the model tier; publish them there and \
                 load without parameters",
                shorten(parameter)
            )));
        }
        let (this, name) = (Arc::clone(self), name.to_owned());
        let loaded = tokio::spawn(async move { this.load_from_tier(&name).await }).await;
        loaded.unwrap_or_else(|e| Err(Refusal::new(Reason::Inference, format!("loading failed: {e}"))))
    }

    /// `POST /v2/repository/models/M/unload`: accepts no new requests, finishes pending ones, and frees the sessions.
    /// Replies when that is done, or after the drain time. Triton's `unload_dependents` has no effect here.
    ///
    /// # Errors
    /// Fails if the call is not allowed, if a parameter is not supported, or if the model is unknown.
    pub(crate) async fn unload_by_request(self: &Arc<Self>, name: &str, parameters: &[String]) -> Result<(), Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.iter().find(|name| *name != "unload_dependents") {
            return Err(Refusal::bad(format!("unknown parameter `{}`", shorten(parameter))));
        }
        self.check_started()?;
        self.snapshot().entry(name)?;
        let (this, name) = (Arc::clone(self), name.to_owned());
        let unloading = tokio::spawn(async move {
            let _lock = this.lock_model(&name).await;
            this.unload(&name, "unloaded").await;
        });
        unloading
            .await
            .map_err(|e| Refusal::new(Reason::Inference, format!("unloading failed: {e}")))
    }

    /// Lists the tier once. A failed listing changes nothing. A refused model is retried when its objects change, or at
    /// the next listing if the tier failed or its table cannot be opened.
    async fn poll_once(&self, seen: &mut Listing) {
        let Some(loader) = self.loader.get() else { return };
        let listing = match repository::list(&*loader.tier, None).await {
            Ok(listing) => listing,
            Err(error) => {
                let error = error.for_operator();
                tracing::warn!(error, "cannot list the models on the tier; served models continue");
                return;
            }
        };
        let mut reconciled = listing.clone();
        for (name, objects) in &listing {
            if !self.selects(name) || seen.get(name) == Some(objects) {
                continue;
            }
            let _lock = self.lock_model(name).await;
            if let Err(error) = self.reconcile(name, objects, Reload::IfChanged).await {
                tracing::warn!(model = %name, error = error.for_operator(), "cannot update the model");
                if error.transient {
                    reconciled.remove(name);
                }
            }
        }
        // Only names: a snapshot holds the models, and keeps their sessions from ending.
        let mut removed: Vec<String> = self.snapshot().0.keys().cloned().collect();
        removed.retain(|name| !listing.contains_key(name));
        for name in removed {
            let _lock = self.lock_model(&name).await;
            self.unload(&name, "removed from the model tier").await;
            self.forget(&name);
        }
        *seen = reconciled;
    }
}

/// Lists the tier until the server is dropped. `seen` is the listing of the start.
async fn poll(management: Weak<ModelManager>, every: Duration, mut seen: Listing) {
    loop {
        tokio::time::sleep(every).await;
        let Some(management) = management.upgrade() else {
            return;
        };
        management.poll_once(&mut seen).await;
    }
}
