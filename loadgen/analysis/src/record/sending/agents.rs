//! Start uncertainty of several agents.

use serde::{Deserialize, Serialize};

/// Agent of a step, with the error of its clock and its lateness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStart {
    /// Name and address of the agent.
    pub agent: String,
    /// Lead of its clock over the run's in microseconds; corrected.
    pub offset_us: f64,
    /// Uncertainty of that lead in microseconds: half of the shortest of several round trips.
    pub uncertainty_us: f64,
    /// Delay of its start in microseconds, as reported by the agent.
    pub late_us: f64,
    /// Requests of its share, warm-up included.
    pub requests: u64,
}

impl AgentStart {
    /// Returns the maximum distance between the common start and its own, in microseconds.
    #[must_use]
    pub fn skew_us(&self) -> f64 {
        self.uncertainty_us + self.late_us
    }
}

/// Returns the agent that may have started furthest from the common start.
#[must_use]
pub fn worst_start(agents: &[AgentStart]) -> Option<&AgentStart> {
    agents.iter().max_by(|a, b| a.skew_us().total_cmp(&b.skew_us()))
}
