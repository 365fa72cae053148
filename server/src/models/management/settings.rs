//! What the configuration says of which models are served, and who decides.

use std::collections::BTreeMap;
use std::time::Duration;

/// Who decides which models are loaded, in Triton's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ControlMode {
    /// The start alone.
    #[default]
    None,
    /// Calls of load and unload.
    Explicit,
    /// What lies on the model tier, listed at an interval.
    Poll {
        /// The pause between two looks.
        every: Duration,
    },
}

/// `[repository]`, `[admin]`, `models` and the drain time.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagementSettings {
    pub(crate) control: ControlMode,
    /// Whether load and unload are answered at all.
    pub(crate) admin: bool,
    /// Models to serve; empty means all, and none in explicit control. [`ALL_MODELS`] means all in any case.
    pub(crate) models: Vec<String>,
    /// Keys that go before those of models' own configs, by model.
    pub(crate) model_configs: BTreeMap<String, toml::Table>,
    /// How long an unload waits for its requests.
    pub(crate) drain: Duration,
}

/// Stands for every model in [`ManagementSettings::models`].
pub(crate) const ALL_MODELS: &str = "*";
