//! Which versions of a model are served, as its config and its configuration document say.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which versions of a model are served at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum VersionPolicy {
    /// The highest ones.
    Latest {
        /// Number of versions; at least 1.
        num_versions: u32,
    },
    /// Every one there is.
    All {},
    /// These and no others.
    Specific {
        /// At least one; each must be there.
        versions: Vec<u64>,
    },
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest { num_versions: 1 }
    }
}

impl VersionPolicy {
    /// True for the default policy.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The versions to serve out of those that are there, in rising order. A version that [`VersionPolicy::Specific`]
    /// names is among them whether it is there or not.
    #[must_use]
    pub fn choose(&self, there: &BTreeSet<u64>) -> BTreeSet<u64> {
        match self {
            Self::Latest { num_versions } => there.iter().rev().take(*num_versions as usize).copied().collect(),
            Self::All {} => there.clone(),
            Self::Specific { versions } => versions.iter().copied().collect(),
        }
    }
}
