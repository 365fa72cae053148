//! The models of a running server: those that are served, and those that were refused, with the reason.

use crate::model::Model;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The models are being loaded.
    Loading,
    /// Requests are taken.
    Ready,
    /// No new connections are taken; what is admitted is finished.
    Draining,
}

/// One model of the repository.
pub(crate) enum Entry {
    /// It is served.
    Ready(Arc<Model>),
    /// It cannot be; why.
    Refused(String),
}

/// Every model, by name.
#[derive(Default)]
pub(crate) struct Served(pub(crate) BTreeMap<String, Entry>);

impl Served {
    pub(crate) fn find(&self, name: &str) -> Option<&Entry> {
        self.0.get(name)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Those that are served.
    pub(crate) fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.0.values().filter_map(|entry| match entry {
            Entry::Ready(model) => Some(model),
            Entry::Refused(_) => None,
        })
    }
}
