//! Parameters of the simulation.

use std::time::Duration;

/// A run, its agents, and what is between them.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Number of agents.
    pub agents: u32,
    /// Number of agents asked for their time at once.
    pub asked_at_once: u32,
    /// Requests a second of all together.
    pub rate: f64,
    /// Length of the step, warm-up included.
    pub step: Duration,
    /// One way to the agent in the middle; half of them are within a quarter of it.
    pub way: Duration,
    /// Mean extra delay of a message.
    pub jitter: Duration,
    /// Time of the run's thread to send or read a message.
    pub handling: Duration,
    /// And to read a sample.
    pub sample_handling: Duration,
    /// Time of an agent to prepare a request.
    pub preparing: Duration,
    /// Bytes a second of the run's network, each way.
    pub bandwidth: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// A time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
