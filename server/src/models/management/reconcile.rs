//! Changes of the served versions: a version is loaded and warmed beside the old one and replaces it, or is refused
//! while the old one continues; an unwanted version finishes its requests and is freed.
//!
//! Every change of a model is made under its lock, so that changes never overlap.

use super::ModelManager;
use crate::batch::BatchQueue;
use crate::error::LoadError;
use crate::models::loading::Loader;
use crate::models::loading::fitting::LoadSlot;
use crate::models::repository::{self, ModelDescription};
use crate::models::served_models::{ServedVersion, VersionState, shorten};
use crate::models::serving::Model;
use crate::request::{Reason, Refusal};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tierlab_protocol::metadata::{LoadDocument, VersionLoad};
use tierlab_storage::Object;
use tokio::time::{timeout, timeout_at};

/// Handling of versions whose files equal those that were loaded or refused last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// Load them again.
    Always,
    /// Leave them unchanged.
    IfChanged,
}

impl ModelManager {
    /// Loads a model by its name, under its lock.
    pub(super) async fn load_from_tier(&self, name: &str) -> Result<LoadDocument, Refusal> {
        let loading = || Refusal::new(Reason::NotReady, "the models are still being loaded");
        let Loader { tier, .. } = self.loader.get().ok_or_else(loading)?;
        let _lock = self.lock_model(name).await;
        let tier_failed = |error: LoadError| Refusal::new(Reason::Tier, error.message);
        let listing = repository::list(&**tier, Some(name)).await.map_err(tier_failed)?;
        let Some(objects) = listing.get(name) else {
            let message = format!("unknown model `{}`: not on the model tier", shorten(name));
            return Err(Refusal::new(Reason::UnknownModel, message));
        };
        self.reconcile(name, objects, Reload::Always).await.map_err(|error| {
            let reason = match error.transient {
                true => Reason::Tier,
                false => Reason::Unloadable,
            };
            Refusal::new(reason, format!("failed to load `{name}`: {error}"))
        })
    }

    /// Updates the served versions of a model to its config and the versions on the tier. The caller holds its lock.
    ///
    /// # Errors
    /// The first version that cannot be served. The others are served; until all wanted versions are served, previously
    /// served versions continue.
    pub(super) async fn reconcile(
        &self,
        name: &str,
        objects: &[Object],
        reload: Reload,
    ) -> Result<LoadDocument, LoadError> {
        let not_opened = || LoadError::new("the tiers are not opened yet");
        let loader = self.loader.get().ok_or_else(not_opened)?;
        let limits = &loader.limits;
        let keys = self.settings.model_configs.get(name);
        let described = timeout(limits.load, repository::describe(&*loader.tier, name, objects, keys)).await;
        let late = |_| Err(limits.timed_out(name, "its config was not read"));
        let described = match described.unwrap_or_else(late) {
            Ok(described) => described,
            Err(error) => {
                self.edit(name, |entry| entry.reason.clone_from(&error.message));
                return Err(error);
            }
        };
        self.edit(name, |entry| entry.reason.clear());
        let mut document = LoadDocument {
            model: name.to_owned(),
            versions: Vec::new(),
        };
        let mut failed = None;
        for &version in &described.versions {
            let fingerprint = described.fingerprint(version);
            if reload == Reload::IfChanged && self.has_loaded(name, version, &fingerprint) {
                continue;
            }
            match self.load_version(loader, &described, version, fingerprint).await {
                Ok(loaded) => document.versions.push(loaded),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.drop_unwanted(name, &described.versions);
        failed.map_or(Ok(document), Err)
    }

    /// True if a version was loaded or refused with these files.
    fn has_loaded(&self, name: &str, version: u64, fingerprint: &str) -> bool {
        let served = self.snapshot();
        let record = served.0.get(name).and_then(|entry| entry.versions.get(&version));
        record.is_some_and(|record| record.fingerprint == fingerprint)
    }

    /// Loads a version beside the served ones. Serves it, or records why not.
    async fn load_version(
        &self,
        loader: &Loader,
        described: &ModelDescription,
        version: u64,
        fingerprint: String,
    ) -> Result<VersionLoad, LoadError> {
        let name = described.name.as_str();
        self.edit(name, |entry| {
            let new = || ServedVersion::without_model(VersionState::Loading, "");
            let record = entry.versions.entry(version).or_insert_with(new);
            if record.model.is_none() {
                record.state = VersionState::Loading;
                record.reason.clear();
            }
        });
        match self.read_and_load(loader, described, version).await {
            Ok((model, loaded)) => {
                let VersionLoad { seconds, optimized, .. } = &loaded;
                tracing::info!(
                    model = name,
                    version,
                    provider = model.provider,
                    batched = model.signature.batched,
                    max_batch_size = model.config.max_batch_size,
                    read_s = seconds.read,
                    verify_s = seconds.verify,
                    place_s = seconds.place,
                    session_s = seconds.session,
                    warmup_s = seconds.warmup,
                    features_s = seconds.features,
                    optimized,
                    "loaded"
                );
                let new = ServedVersion {
                    state: VersionState::Ready,
                    model: Some(Arc::new(model)),
                    reason: String::new(),
                    fingerprint,
                };
                self.replace(name, version, &new);
                Ok(loaded)
            }
            Err(error) => {
                self.refuse(name, version, fingerprint, &error);
                Err(error)
            }
        }
    }

    /// Loads a version, under its lock and within the limits.
    async fn read_and_load(
        &self,
        loader: &Loader,
        described: &ModelDescription,
        version: u64,
    ) -> Result<(Model, VersionLoad), LoadError> {
        let closed = |_| LoadError::new("the server is shutting down");
        let permit = self.loads.acquire().await.map_err(closed)?;
        loader.check_abandoned().await?;
        let Loader { limits, mapped, .. } = loader;
        let deadline = Instant::now() + limits.load;
        let read = timeout_at(deadline.into(), described.read(&*loader.tier, version, mapped)).await;
        let late = |_| Err(limits.timed_out(format_args!("{} {version}", described.name), "its files were not read"));
        let found = read.unwrap_or_else(late)?;
        loader.load(described, found, LoadSlot { deadline, permit }).await
    }

    /// Records why a version was not loaded. The version served before continues.
    fn refuse(&self, name: &str, version: u64, fingerprint: String, error: &LoadError) {
        // A temporary failure is retried.
        let fingerprint = if error.transient { String::new() } else { fingerprint };
        self.edit(name, |entry| {
            if let Some(record) = entry.versions.get_mut(&version) {
                record.fingerprint.clone_from(&fingerprint);
                if record.model.is_some() {
                    record.reason = format!("a newer copy was refused, the previous one continues: {error}");
                    let (error, message) = (error.for_operator(), "newer copy refused; the previous one continues");
                    tracing::error!(model = name, version, error, "{message}");
                } else {
                    record.state = VersionState::Unavailable;
                    record.reason.clone_from(&error.message);
                    tracing::error!(model = name, version, error = error.for_operator(), "refused");
                }
            }
        });
    }

    /// Unloads the versions that the config no longer wants, once all wanted ones are served.
    fn drop_unwanted(&self, name: &str, wanted: &BTreeSet<u64>) {
        let served = self.snapshot();
        let Some(entry) = served.0.get(name) else { return };
        let is_served = |version: &u64| entry.versions.get(version).is_some_and(|record| record.model.is_some());
        if !wanted.iter().all(is_served) {
            return;
        }
        for (&version, record) in entry.versions.iter().filter(|(version, _)| !wanted.contains(version)) {
            if record.model.is_some() {
                let reason = "removed from the model tier, or not selected by the model's `version_policy`";
                let unloaded = ServedVersion::without_model(VersionState::Unavailable, reason);
                self.replace(name, version, &unloaded);
            } else {
                self.edit(name, |entry| {
                    entry.versions.remove(&version);
                });
            }
        }
    }

    /// Replaces a version. The old one finishes its requests and is freed.
    fn replace(&self, name: &str, version: u64, new: &ServedVersion) {
        let old = {
            let served = self.snapshot();
            let entry = served.0.get(name);
            entry.and_then(|entry| entry.versions.get(&version)?.model.clone())
        };
        self.edit(name, |entry| {
            entry.versions.insert(version, new.clone());
        });
        if let Some(old) = old {
            tokio::spawn(retire(old));
        }
    }

    /// Unloads every version of a model; the caller holds its lock. Returns when its requests are finished and its
    /// sessions freed, or after the drain time; runs still in progress are then interrupted.
    pub(super) async fn unload(&self, name: &str, reason: &str) {
        let served = self.snapshot();
        let Some(entry) = served.0.get(name) else { return };
        let models: Vec<Arc<Model>> = entry.ready().cloned().collect();
        let numbers: Vec<u64> = entry.versions.keys().copied().collect();
        // The snapshot also holds the models.
        drop(served);
        let all = |state| {
            self.edit(name, |entry| {
                entry.reason.clear();
                for number in &numbers {
                    let unloaded = ServedVersion::without_model(state, reason);
                    entry.versions.insert(*number, unloaded);
                }
            });
        };
        all(VersionState::Unloading);
        let queues: Vec<Arc<BatchQueue>> = models.iter().map(|model| Arc::clone(&model.queue)).collect();
        let freed = models.into_iter().map(retire);
        let freed = tokio::spawn(futures::future::join_all(freed));
        if tokio::time::timeout(self.settings.drain, freed).await.is_err() {
            let refusal = Refusal::new(Reason::NotReady, format!("model `{name}` was unloaded"));
            let ended: usize = queues.iter().map(|queue| queue.stop_runs(&refusal).len()).sum();
            tracing::warn!(model = name, ended, "unloaded; interrupted runs in progress");
        }
        all(VersionState::Unavailable);
        tracing::info!(model = name, reason, "unloaded");
    }
}

/// Drops a model and waits until its last request is answered and its sessions are freed.
async fn retire(model: Arc<Model>) {
    let (name, version) = (model.name.clone(), model.version.clone());
    let threads = model.threads_ended();
    drop(model);
    threads.await;
    tracing::info!(model = name, version, "freed the model's sessions");
}
