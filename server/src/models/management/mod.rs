//! Changes of the served models: at the start, by request, or by the contents of the model tier.

mod changes;
pub(crate) mod manager;
mod reconcile;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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
