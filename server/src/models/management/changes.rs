//! Changes of the served models: at the start, by load and unload requests, and in poll control by listing the model
//! tier periodically.
//!
//! In: the configuration, calls of clients, and listings. Out: served models, or the reason of a refusal. A failed
//! listing changes nothing. A refused model is retried when its objects change, or at the next listing if the tier
//! failed.

use super::reconcile::Reload;
use super::{ALL_MODELS, ControlMode, ModelManager};
use crate::error::LoadError;
use crate::models::loading::Loader;
use crate::models::repository::{self, Listing};
use crate::models::served_models::shown;
use crate::request::{Reason, Refusal};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tierlab_protocol::metadata::LoadDocument;

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

    /// Chooses the models to load at the start.
    fn choose(&self, listing: &Listing, location: &str) -> Result<Vec<String>, LoadError> {
        let wanted = &self.settings.models;
        if listing.is_empty() {
            let what = format!(
                "no model on the model tier ({location}): run in the server's working directory `tierlab-models generate \
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
            let what = format!("unknown model `{name}`: the model tier ({location}) has {have}");
            return Err(LoadError::new(what));
        }
        Ok(listing.keys().filter(|name| self.wants(name)).cloned().collect())
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
                shown(parameter)
            )));
        }
        let (this, name) = (Arc::clone(self), name.to_owned());
        let loading = tokio::spawn(async move { this.load_from_tier(&name).await });
        loading
            .await
            .unwrap_or_else(|e| Err(Refusal::new(Reason::Inference, format!("loading failed: {e}"))))
    }

    /// `POST /v2/repository/models/M/unload`: accepts no new requests, finishes pending ones, and frees the sessions.
    /// Replies when that is done, or after the drain time. Triton's `unload_dependents` has no effect here.
    ///
    /// # Errors
    /// Fails if the call is not allowed, if a parameter is not supported, or if the model is unknown.
    pub(crate) async fn unload_by_request(self: &Arc<Self>, name: &str, parameters: &[String]) -> Result<(), Refusal> {
        self.allow_change(name)?;
        if let Some(parameter) = parameters.iter().find(|name| *name != "unload_dependents") {
            return Err(Refusal::bad(format!("unknown parameter `{}`", shown(parameter))));
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
    async fn poll_once(&self, seen: &mut Listing) {
        let Some(loader) = self.loader.get() else { return };
        let listing = match repository::list(&*loader.tier, None).await {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(
                    error = error.for_operator(),
                    "cannot list the models on the tier; served models continue"
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
                tracing::warn!(model = %name, error = error.for_operator(), "cannot update the model");
                if error.passing {
                    reconciled.remove(name);
                }
            }
        }
        // Only names: a snapshot holds the models, and keeps their sessions from ending.
        let mut gone: Vec<String> = self.snapshot().0.keys().cloned().collect();
        gone.retain(|name| !listing.contains_key(name));
        for name in gone {
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
