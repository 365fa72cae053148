//! The management calls: find, describe, index, statistics, load and unload. Every front calls these and no other.
//!
//! In: names, versions and requests to load or unload. Out: models, documents, or refusals. Reading takes no lock: the
//! models are an immutable picture ([`Served`]) that every change replaces whole. Changes are made in [`reconcile`].

mod poll;
mod reconcile;

use crate::models::loading::load::Loader;
use crate::models::repository::{self, Listing, LoadError};
use crate::models::served::{Served, shown};
use crate::models::serving::Model;
use crate::pipeline::refusal::{Reason, Refusal};
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tierlab_protocol::metadata::{ConfigDocument, IndexEntry, LoadDocument, ModelMetadata, StatsDocument};
use tierlab_storage::Tier;
use tokio::sync::Semaphore;

/// Who decides which models are loaded, in Triton's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Control {
    /// The start, once and for all.
    #[default]
    None,
    /// Calls of load and unload.
    Explicit,
    /// What lies on the model tier, looked at again and again.
    Poll {
        /// The pause between two looks.
        every: Duration,
    },
}

/// What the configuration says of all this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) control: Control,
    /// Whether load and unload are answered at all.
    pub(crate) admin: bool,
    /// Models to serve; empty means all, and none in explicit control. [`ALL_MODELS`] means all in any case.
    pub(crate) models: Vec<String>,
    /// How long an unload waits for its requests.
    pub(crate) drain: Duration,
}

/// Stands for every model in [`Settings::models`].
pub(crate) const ALL_MODELS: &str = "*";
/// Models that are loaded at the same time: each holds its files in memory meanwhile.
const MAX_PARALLEL_LOADS: usize = 2;
/// The index looks at the tier at most this often.
const LISTING_AGE: Duration = Duration::from_secs(1);

/// Where models come from.
pub(crate) struct Workshop {
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) loader: Loader,
}

/// The models of a server.
pub(crate) struct Management {
    settings: Settings,
    served: ArcSwap<Served>,
    workshop: OnceLock<Workshop>,
    started: OnceLock<()>,
    /// One change of a model at a time.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    loads: Semaphore,
    /// The names on the tier, and when they were read.
    names: tokio::sync::Mutex<Option<(Instant, Vec<String>)>>,
}

impl Management {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            served: ArcSwap::default(),
            workshop: OnceLock::new(),
            started: OnceLock::new(),
            turns: Mutex::default(),
            loads: Semaphore::new(MAX_PARALLEL_LOADS),
            names: tokio::sync::Mutex::default(),
        })
    }

    /// Loads the models that are served from the start. Called once.
    ///
    /// # Errors
    /// A model that was asked for by name and cannot be served; in control [`Control::None`], nothing to serve.
    pub(crate) async fn start(self: &Arc<Self>, workshop: Workshop) -> Result<(), LoadError> {
        let mut listing = repository::list(&*workshop.tier).await?;
        let location = workshop.tier.info().location;
        let chosen = self.choose(&listing, &location)?;
        if self.workshop.set(workshop).is_err() {
            return Err(LoadError::new("the models are loaded once"));
        }
        for name in chosen {
            let _turn = self.turn(&name).await;
            let Err(error) = self.bring(&name, &listing[&name], reconcile::Again::Always).await else {
                continue;
            };
            // Asked for by name: a start without it would not be what was asked for.
            if self.settings.models.contains(&name) {
                let detailed = format!("model `{name}` is refused: {}", error.for_operator());
                return Err(LoadError::new(format!("model `{name}` is refused: {error}")).with_detail(detailed));
            }
            tracing::error!(model = %name, error = error.for_operator(), "refused; the other models are served");
            if error.passing {
                listing.remove(&name);
            }
        }
        if self.settings.control == Control::None && self.picture().models().next().is_none() {
            let refused = self.picture().index();
            let why: Vec<String> = refused
                .iter()
                .map(|entry| format!("\n  {}: {}", entry.name, entry.reason))
                .collect();
            return Err(LoadError::new(format!("no model can be served:{}", why.concat())));
        }
        let _ = self.started.set(());
        if let Control::Poll { every } = self.settings.control {
            tokio::spawn(poll::run(Arc::downgrade(self), every, listing));
        }
        Ok(())
    }

    /// The models to load at the start.
    fn choose(&self, listing: &Listing, location: &str) -> Result<Vec<String>, LoadError> {
        let wanted = &self.settings.models;
        if listing.is_empty() && self.settings.control == Control::None {
            return Err(LoadError::new(format!(
                "no models on the model tier ({location}): publish some with `tierlab-models publish`"
            )));
        }
        if let Some(name) = wanted
            .iter()
            .find(|name| *name != ALL_MODELS && !listing.contains_key(*name))
        {
            let have: Vec<&str> = listing.keys().map(String::as_str).collect();
            return Err(LoadError::new(format!(
                "no model `{name}` on the model tier ({location}), which has {}",
                have.join(", ")
            )));
        }
        Ok(listing.keys().filter(|name| self.wants(name)).cloned().collect())
    }

    /// Whether a model on the tier is served without a call to load it.
    fn wants(&self, name: &str) -> bool {
        let wanted = &self.settings.models;
        let every = wanted.is_empty() && self.settings.control != Control::Explicit;
        every || wanted.iter().any(|wanted| wanted == ALL_MODELS || wanted == name)
    }

    /// Whether the start is over.
    pub(crate) fn started(&self) -> bool {
        self.started.get().is_some()
    }

    /// The models as they are now.
    pub(crate) fn picture(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// The model that a request names; without a version, or with an empty one, the highest that is served.
    ///
    /// # Errors
    /// An unknown model or version, or one that is not served.
    pub(crate) fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, Refusal> {
        let served = self.served.load();
        served
            .find(name, version)
            .map(Arc::clone)
            .map_err(|refusal| self.at_start(refusal))
    }

    /// During the start a model that is not there yet is no unknown one.
    fn at_start(&self, refusal: Refusal) -> Refusal {
        if self.started() {
            refusal
        } else {
            Refusal::new(Reason::NotReady, "the models are still being loaded")
        }
    }

    /// `GET /v2/models/M[/versions/V]`.
    ///
    /// # Errors
    /// As [`Management::find`].
    pub(crate) fn metadata(&self, name: &str, version: Option<&str>) -> Result<ModelMetadata, Refusal> {
        let served = self.picture();
        let model = served.find(name, version).map_err(|refusal| self.at_start(refusal))?;
        Ok(model.metadata(served.entry(name)?.ready_versions()))
    }

    /// `GET /v2/models/M[/versions/V]/config`.
    ///
    /// # Errors
    /// As [`Management::find`].
    pub(crate) fn config(&self, name: &str, version: Option<&str>) -> Result<ConfigDocument, Refusal> {
        Ok(self.find(name, version)?.config_document())
    }

    /// `GET /v2/models/stats`, of one model (every version that is served) or of one version.
    ///
    /// # Errors
    /// As [`Management::find`].
    pub(crate) fn statistics(&self, name: Option<&str>, version: Option<&str>) -> Result<StatsDocument, Refusal> {
        let served = self.picture();
        let version = version.filter(|version| !version.is_empty());
        let model_stats = match (name.filter(|name| !name.is_empty()), version) {
            (None, _) => served.models().map(|model| model.stats_entry()).collect(),
            (Some(name), None) => {
                served.find(name, None).map_err(|refusal| self.at_start(refusal))?;
                served.entry(name)?.ready().map(|model| model.stats_entry()).collect()
            }
            (Some(name), Some(version)) => vec![self.find(name, Some(version))?.stats_entry()],
        };
        Ok(StatsDocument { model_stats })
    }

    /// `POST /v2/repository/index`: every version that was loaded, refused or unloaded, and in explicit control the models
    /// on the tier that were not.
    pub(crate) async fn index(&self, ready_only: bool) -> Vec<IndexEntry> {
        let mut index = self.picture().index();
        if ready_only {
            index.retain(|entry| entry.state == "READY");
            return index;
        }
        if self.settings.control == Control::Explicit {
            for name in self.names().await {
                if !index.iter().any(|entry| entry.name == name) {
                    index.push(IndexEntry {
                        name,
                        version: String::new(),
                        state: String::new(),
                        reason: String::new(),
                    });
                }
            }
            index.sort_by(|a, b| a.name.cmp(&b.name));
        }
        index
    }

    /// The names on the tier, a second old at most. A tier that fails leaves the last ones.
    async fn names(&self) -> Vec<String> {
        let mut names = self.names.lock().await;
        let fresh = names.as_ref().is_some_and(|(read, _)| read.elapsed() < LISTING_AGE);
        if let (false, Some(workshop)) = (fresh, self.workshop.get()) {
            match repository::list(&*workshop.tier).await {
                Ok(listing) => *names = Some((Instant::now(), listing.into_keys().collect())),
                Err(error) => tracing::warn!(%error, "the models on the tier cannot be listed"),
            }
        }
        names.as_ref().map(|(_, names)| names.clone()).unwrap_or_default()
    }

    /// Whether models may be loaded and unloaded by request. What goes before a load or unload, authorisation included,
    /// is asked here.
    ///
    /// # Errors
    /// Why not, with the key to set.
    pub(crate) fn allow_change(&self, name: &str) -> Result<(), Refusal> {
        if !self.settings.admin {
            return Err(Refusal::new(
                Reason::Forbidden,
                "loading and unloading by request is off: set `enabled = true` under `[admin]` in server.toml",
            ));
        }
        let control = match self.settings.control {
            Control::Explicit => return Ok(()),
            Control::None => "none",
            Control::Poll { .. } => "poll",
        };
        Err(Refusal::bad(format!(
            "model `{}` cannot be loaded or unloaded by request: `repository.control` in server.toml is `{control}`, \
             not `explicit`",
            shown(name)
        )))
    }

    /// `POST /v2/repository/models/M/load`: reads the model from the tier again, whether it is served or not, and swaps
    /// what loads for what was served. Goes on when the caller goes away. `parameters` are the names of those given.
    ///
    /// # Errors
    /// A call that is not allowed, a parameter that is not supported, a model that is not there or cannot be served; what
    /// was served goes on.
    pub(crate) async fn load(self: &Arc<Self>, name: &str, parameters: &[String]) -> Result<LoadDocument, Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.first() {
            return Err(Refusal::bad(format!(
                "parameter `{}`: a model's config and files are taken from the model tier alone; put them there and \
                 load without parameters",
                shown(parameter)
            )));
        }
        let (this, name) = (Arc::clone(self), name.to_owned());
        let loading = tokio::spawn(async move { this.load_by_request(&name).await });
        loading
            .await
            .unwrap_or_else(|e| Err(Refusal::new(Reason::Inference, format!("loading failed: {e}"))))
    }

    /// `POST /v2/repository/models/M/unload`: takes no new requests, finishes those it has, and frees the sessions. The
    /// answer comes when that is done, or after the drain time. Triton's `unload_dependents` changes nothing here.
    ///
    /// # Errors
    /// A call that is not allowed, a parameter that is not supported, an unknown model.
    pub(crate) async fn unload(self: &Arc<Self>, name: &str, parameters: &[String]) -> Result<(), Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.iter().find(|name| *name != "unload_dependents") {
            return Err(Refusal::bad(format!("parameter `{}` is not known", shown(parameter))));
        }
        if !self.started() {
            return Err(Refusal::new(Reason::NotReady, "the models are still being loaded"));
        }
        self.picture().entry(name)?;
        let (this, name) = (Arc::clone(self), name.to_owned());
        let unloading = tokio::spawn(async move {
            let _turn = this.turn(&name).await;
            this.take_out(&name, "unloaded").await;
        });
        unloading
            .await
            .map_err(|e| Refusal::new(Reason::Inference, format!("unloading failed: {e}")))
    }

    /// Waits until no other change of this model is under way.
    async fn turn(&self, name: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}
