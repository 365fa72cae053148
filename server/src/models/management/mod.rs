//! Which models are served, and how that changes: at the start, by request, or by what lies on the model tier.

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
    /// The start alone.
    #[default]
    None,
    /// Calls of load and unload.
    Explicit,
    /// Models on the tier, listed at an interval.
    Poll,
}

/// `[repository]`, `[admin]`, `models` and the drain time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagementSettings {
    pub(crate) control: ControlMode,
    /// Pause between two looks at the tier in [`ControlMode::Poll`].
    pub(crate) poll_interval: Duration,
    /// True if load and unload calls are answered.
    pub(crate) admin: bool,
    /// Models to serve; empty means all, and none in explicit control. [`ALL_MODELS`] means all in any case.
    pub(crate) models: Vec<String>,
    /// Keys that go before those of models' own configs, by model.
    pub(crate) model_configs: BTreeMap<String, toml::Table>,
    /// Time that an unload waits for its requests.
    pub(crate) drain: Duration,
    /// Configuration file of the model tier, for advice.
    pub(crate) tier_file: PathBuf,
}

/// Stands for every model in [`ManagementSettings::models`].
pub(crate) const ALL_MODELS: &str = "*";
