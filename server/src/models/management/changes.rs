//! Changes of the models that are served: the start, loads and unloads by request, and in poll control the model tier, which is
//! listed at an interval.
//!
//! In: what the configuration wants, calls of clients, and listings. Out: models that are served, or why not. A tier that fails
//! at a listing changes nothing; a model that is refused is tried again when its objects change, or at the next listing if it
//! was the tier that failed.

use super::manager::{ModelManager, ModelSource};
use super::reconcile::Reload;
use super::{ALL_MODELS, ControlMode};
use crate::error::LoadError;
use crate::models::repository::{self, Listing};
use crate::models::served_models::shown;
use crate::request::{Reason, Refusal};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tierlab_protocol::metadata::LoadDocument;

impl ModelManager {
    /// Loads the models that are served from the start. Called once.
    ///
    /// # Errors
    /// A model that was asked for by name and cannot be served; in control [`ControlMode::None`], nothing to serve.
    pub(crate) async fn start(self: &Arc<Self>, source: ModelSource) -> Result<(), LoadError> {
        let mut listing = repository::list(&*source.tier).await?;
        let location = source.tier.info().location;
        let chosen = self.choose(&listing, &location)?;
        let configured = self.settings.model_configs.keys();
        for name in configured.filter(|&name| !listing.contains_key(name)) {
            tracing::warn!(model = %name, "`model_config` has keys for it, and it is not on the tier");
        }
        if self.source.set(source).is_err() {
            return Err(LoadError::new("the models are loaded once"));
        }
        for name in chosen {
            let _lock = self.lock_model(&name).await;
            let Err(error) = self.reconcile(&name, &listing[&name], Reload::Always).await else {
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
        if self.settings.control == ControlMode::None && self.snapshot().models().next().is_none() {
            let refused = self.snapshot().index().into_iter();
            let why: String = refused
                .map(|entry| format!("\n  {}: {}", entry.name, entry.reason))
                .collect();
            return Err(LoadError::new(format!("no model can be served:{why}")));
        }
        let _ = self.started.set(());
        if self.settings.control == ControlMode::Poll {
            tokio::spawn(poll(Arc::downgrade(self), self.settings.poll_interval, listing));
        }
        Ok(())
    }

    /// The models to load at the start.
    fn choose(&self, listing: &Listing, location: &str) -> Result<Vec<String>, LoadError> {
        let wanted = &self.settings.models;
        if listing.is_empty() {
            let what = format!(
                "no model on the model tier ({location}): in the server's working directory, run `tierlab-models generate \
                 --model mlp && tierlab-models publish --to {}`, or publish your own",
                self.settings.tier_file.display()
            );
            if self.settings.control == ControlMode::None {
                return Err(LoadError::new(what));
            }
            tracing::warn!("{what}");
        }
        let is_missing = |name: &&String| *name != ALL_MODELS && !listing.contains_key(*name);
        if let Some(name) = wanted.iter().find(is_missing) {
            let have = listing.keys().cloned().collect::<Vec<_>>().join(", ");
            let what = format!("no model `{name}` on the model tier ({location}), which has {have}");
            return Err(LoadError::new(what));
        }
        Ok(listing.keys().filter(|name| self.wants(name)).cloned().collect())
    }

    /// `POST /v2/repository/models/M/load`: reads the model from the tier again, whether it is served or not, and swaps
    /// what loads for what was served. Goes on when the caller goes away. `parameters` are the names of those given.
    ///
    /// # Errors
    /// A call that is not allowed, a parameter that is not supported, a model that is not there or cannot be served; what
    /// was served goes on.
    pub(crate) async fn load_by_request(
        self: &Arc<Self>,
        name: &str,
        parameters: &[String],
    ) -> Result<LoadDocument, Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.first() {
            return Err(Refusal::bad(format!(
                "parameter `{}`: a model's config and files are taken from the model tier alone; put them there and \
                 load without parameters",
                shown(parameter)
            )));
        }
        let (this, name) = (Arc::clone(self), name.to_owned());
        let loading = tokio::spawn(async move { this.load_from_tier(&name).await });
        loading
            .await
            .unwrap_or_else(|e| Err(Refusal::new(Reason::Inference, format!("loading failed: {e}"))))
    }

    /// `POST /v2/repository/models/M/unload`: takes no new requests, finishes those it has, and frees the sessions. The
    /// answer comes when that is done, or after the drain time. Triton's `unload_dependents` changes nothing here.
    ///
    /// # Errors
    /// A call that is not allowed, a parameter that is not supported, an unknown model.
    pub(crate) async fn unload_by_request(self: &Arc<Self>, name: &str, parameters: &[String]) -> Result<(), Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.iter().find(|name| *name != "unload_dependents") {
            return Err(Refusal::bad(format!("parameter `{}` is not known", shown(parameter))));
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

    /// Lists the tier once.
    async fn look(&self, seen: &mut Listing) {
        let Some(source) = self.source.get() else { return };
        let listing = match repository::list(&*source.tier).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(
                    error = error.for_operator(),
                    "the models on the tier cannot be listed; what is served goes on"
                );
                return;
            }
        };
        let mut reconciled = listing.clone();
        for (name, objects) in &listing {
            if !self.wants(name) || seen.get(name) == Some(objects) {
                continue;
            }
            let _lock = self.lock_model(name).await;
            if let Err(error) = self.reconcile(name, objects, Reload::IfChanged).await {
                tracing::warn!(model = %name, error = error.for_operator(), "the model could not be brought up to date");
                if error.passing {
                    reconciled.remove(name);
                }
            }
        }
        // Names alone: a snapshot holds the models, and keeps their sessions from ending.
        let mut gone: Vec<String> = self.snapshot().0.keys().cloned().collect();
        gone.retain(|name| !listing.contains_key(name));
        for name in gone {
            let _lock = self.lock_model(&name).await;
            self.unload(&name, "gone from the model tier").await;
            self.forget(&name);
        }
        *seen = reconciled;
    }
}

/// Lists the tier until the server is gone. `seen` is the listing of the start.
async fn poll(management: Weak<ModelManager>, every: Duration, mut seen: Listing) {
    loop {
        tokio::time::sleep(every).await;
        let Some(management) = management.upgrade() else {
            return;
        };
        management.look(&mut seen).await;
    }
}
