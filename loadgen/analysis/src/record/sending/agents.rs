//! Start uncertainty of several agents.

use serde::{Deserialize, Serialize};

/// An agent of a step: how far its clock was from the run's, and how late it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStart {
    /// Its name and address.
    pub agent: String,
    /// By how many microseconds its clock was ahead of the run's; corrected.
    pub offset_us: f64,
    /// Give or take so many: half of the shortest of several round trips.
    pub uncertainty_us: f64,
    /// By how many microseconds it began later than it was told, as it says itself.
    pub late_us: f64,
    /// Requests of its share, warm-up included.
    pub requests: u64,
}

impl AgentStart {
    /// So many microseconds at most lay between the common start and its own.
    #[must_use]
    pub fn skew_us(&self) -> f64 {
        self.uncertainty_us + self.late_us
    }
}

/// The agent that may have begun furthest from the common start.
#[must_use]
pub fn worst_start(agents: &[AgentStart]) -> Option<&AgentStart> {
    agents.iter().max_by(|a, b| a.skew_us().total_cmp(&b.skew_us()))
}
