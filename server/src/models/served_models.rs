//! Models of a running server, by name and version: an immutable snapshot that is replaced as a whole.
//!
//! In: loaded, refused and unloaded versions. Out: the model that a request names, and the index. Knows nothing of
//! tiers.

use crate::models::serving::Model;
use crate::request::{Reason, Refusal};
use std::collections::BTreeMap;
use std::sync::Arc;
use strum::IntoStaticStr;
use tierlab_protocol::grpc::messages::ModelIndex;

/// Model and version named by a client.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Target {
    pub(crate) model: String,
    /// Version; `None` or empty for the highest served one.
    pub(crate) version: Option<String>,
}

impl Target {
    /// Version, if the client names one.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref().filter(|version| !version.is_empty())
    }
}

/// State of one version of a model, in Triton's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE", const_into_str)]
pub(crate) enum VersionState {
    Loading,
    Ready,
    Unloading,
    Unavailable,
}

/// Version of a model.
#[derive(Clone)]
pub(crate) struct ServedVersion {
    pub(crate) state: VersionState,
    /// Present while requests are accepted.
    pub(crate) model: Option<Arc<Model>>,
    /// Reason why it is not served, or why a newer copy was refused.
    pub(crate) reason: String,
    /// Fingerprint of the loaded or refused files: see [`crate::models::repository::ModelDescription::fingerprint`].
    pub(crate) fingerprint: String,
}

impl ServedVersion {
    pub(crate) fn without_model(state: VersionState, reason: impl Into<String>) -> Self {
        Self {
            state,
            model: None,
            reason: reason.into(),
            fingerprint: String::new(),
        }
    }
}

/// Model with its versions by number.
#[derive(Clone, Default)]
pub(crate) struct ServedModel {
    pub(crate) versions: BTreeMap<u64, ServedVersion>,
    /// Reason why the whole model was refused; empty if it was not.
    pub(crate) reason: String,
}

impl ServedModel {
    /// Served versions, lowest first.
    pub(crate) fn ready(&self) -> impl DoubleEndedIterator<Item = &Arc<Model>> {
        self.versions.values().filter_map(|version| version.model.as_ref())
    }

    /// Numbers of the served versions.
    pub(crate) fn ready_versions(&self) -> Vec<String> {
        self.ready().map(|model| model.version.clone()).collect()
    }

    /// Reason why nothing of it is served: its own, or that of its highest version.
    fn unavailable_reason(&self) -> String {
        if !self.reason.is_empty() {
            return self.reason.clone();
        }
        let last = self.versions.values().next_back();
        match last {
            Some(version) if !version.reason.is_empty() => version.reason.clone(),
            Some(version) if version.state == VersionState::Loading => "being loaded".into(),
            _ => "not loaded".into(),
        }
    }
}

/// All models, by name.
#[derive(Clone, Default)]
pub(crate) struct ServedModels(pub(crate) BTreeMap<String, Arc<ServedModel>>);

impl ServedModels {
    /// Model named by a request. Without a version, or with an empty one, the highest served version.
    ///
    /// # Errors
    /// Fails for an unknown model or version, or one that is not served, with the reason.
    pub(crate) fn find(&self, target: &Target) -> Result<&Arc<Model>, Refusal> {
        let name = &target.model;
        let entry = self.entry(name)?;
        let Some(version) = target.version() else {
            let highest = entry.ready().next_back();
            return highest.ok_or_else(|| {
                let message = format!("model `{name}` is not served: {}", entry.unavailable_reason());
                Refusal::new(Reason::NotReady, message)
            });
        };
        let number = version.parse::<u64>().ok();
        let number = number.filter(|number| number.to_string() == version);
        match number.and_then(|number| entry.versions.get(&number)) {
            Some(ServedVersion { model: Some(model), .. }) => Ok(model),
            Some(ServedVersion { state, reason, .. }) => {
                let state = state.into_str().to_lowercase();
                let reason = if reason.is_empty() { "" } else { &format!(": {reason}") };
                let message = format!("version `{version}` of model `{name}` is {state}{reason}");
                Err(Refusal::new(Reason::NotReady, message))
            }
            None => {
                let (version, served) = (shorten(version), entry.ready_versions().join(", "));
                let served = if served.is_empty() { "none" } else { &served };
                let message = format!("unknown version `{version}` of model `{name}`; served: {served}");
                Err(Refusal::new(Reason::UnknownModel, message))
            }
        }
    }

    /// Entry of a model.
    ///
    /// # Errors
    /// Fails for an unknown model.
    pub(crate) fn entry(&self, name: &str) -> Result<&Arc<ServedModel>, Refusal> {
        self.0
            .get(name)
            .ok_or_else(|| Refusal::new(Reason::UnknownModel, format!("unknown model `{}`", shorten(name))))
    }

    /// All served versions.
    pub(crate) fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.0.values().flat_map(|entry| entry.ready())
    }

    /// Index of all versions.
    pub(crate) fn index(&self) -> Vec<ModelIndex> {
        let mut index = Vec::new();
        for (name, entry) in &self.0 {
            let line = |version: String, state: &str, reason: &str| ModelIndex {
                name: name.clone(),
                version,
                state: state.to_owned(),
                reason: reason.to_owned(),
            };
            if entry.versions.is_empty() || !entry.reason.is_empty() {
                let state = if entry.reason.is_empty() { "" } else { "UNAVAILABLE" };
                index.push(line(String::new(), state, &entry.reason));
            }
            for (number, version) in &entry.versions {
                index.push(line(number.to_string(), version.state.into_str(), &version.reason));
            }
        }
        index
    }
}

/// Shortens a client's name for a message.
pub(crate) fn shorten(name: &str) -> String {
    name.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_without_a_reason_is_described_by_its_state() {
        let target = Target {
            model: "m".into(),
            version: Some("3".into()),
        };
        for (state, reason, expected) in [
            (VersionState::Loading, "", "is loading"),
            (VersionState::Unavailable, "unloaded", "is unavailable: unloaded"),
        ] {
            let version = ServedVersion::without_model(state, reason);
            let model = ServedModel {
                versions: BTreeMap::from([(3, version)]),
                reason: String::new(),
            };
            let served = ServedModels(BTreeMap::from([("m".to_owned(), Arc::new(model))]));
            let refusal = served.find(&target).err().unwrap();
            assert_eq!(refusal.message, format!("version `3` of model `m` {expected}"));
        }
    }
}
