//! `[[variant]]` as written. In: TOML. Out: its keys, where a factor is one value or a list. Knows nothing of tiers and profiles.

use crate::plan::target::RawTarget;
use crate::plan::value::Factor;
use serde::Deserialize;
use std::fmt::{self, Display};
use tierlab_analysis::record::StageFill;

/// Default capacity of a stage, in bytes: more than the lab's own tables.
const STAGED_BYTES: u64 = 1 << 30;

/// Copy on a local folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Content at the start of measuring.
    pub fill: StageFill,
    /// If true, all servers of a fleet share it, as processes of one host do; else each is a host of its own.
    pub is_shared: bool,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

/// `[[variant]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct RawVariant {
    pub(super) name: String,
    pub(in crate::plan) tier: Option<String>,
    /// Address of an existing server to measure, in place of `tier`. [variant.target] has its other settings.
    pub(super) url: Option<String>,
    pub(in crate::plan) target: Option<RawTarget>,
    pub(super) emulated: Option<Factor<String>>,
    pub(super) staged: Option<Factor<RawStaged>>,
    pub(super) staged_bytes: Option<u64>,
    pub(super) cache: Option<Factor<String>>,
    pub(super) layout: Option<Factor<String>>,
    pub(super) price: Option<String>,
    pub(super) instance: Option<Factor<String>>,
    /// Keys of the server's config.
    #[serde(default)]
    pub(super) set: toml::Table,
    /// Keys of the server's config, each with a list of values to cross: `"runtime.instances.cores" = [1, 4]`.
    #[serde(default)]
    pub(super) matrix: toml::Table,
}

impl RawVariant {
    /// True for an existing server.
    pub(in crate::plan) const fn is_running(&self) -> bool {
        self.url.is_some() || self.target.is_some()
    }
}

/// `staged`: content of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawStaged {
    None,
    Empty,
    Filled,
    /// Empty, and one for all servers of a fleet.
    Shared,
}

impl RawStaged {
    pub(super) fn stage(self, bytes: Option<u64>) -> Option<Stage> {
        let fill = match self {
            Self::None => return None,
            Self::Empty | Self::Shared => StageFill::Empty,
            Self::Filled => StageFill::Filled,
        };
        Some(Stage {
            fill,
            is_shared: self == Self::Shared,
            capacity_bytes: bytes.unwrap_or(STAGED_BYTES),
        })
    }
}

impl Display for RawStaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "unstaged",
            Self::Empty => "stage-empty",
            Self::Filled => "stage-filled",
            Self::Shared => "stage-shared",
        })
    }
}
