//! What the configuration says of which models are served, and who decides.

use std::time::Duration;

/// Who decides which models are loaded, in Triton's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ControlMode {
    /// The start, once and for all.
    #[default]
    None,
    /// Calls of load and unload.
    Explicit,
    /// What lies on the model tier, looked at again and again.
    Poll {
        /// The pause between two looks.
        every: Duration,
    },
}

/// What the configuration says of all this.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManagementSettings {
    pub(crate) control: ControlMode,
    /// Whether load and unload are answered at all.
    pub(crate) admin: bool,
    /// Models to serve; empty means all, and none in explicit control. [`ALL_MODELS`] means all in any case.
    pub(crate) models: Vec<String>,
    /// How long an unload waits for its requests.
    pub(crate) drain: Duration,
}

/// Stands for every model in [`ManagementSettings::models`].
pub(crate) const ALL_MODELS: &str = "*";
