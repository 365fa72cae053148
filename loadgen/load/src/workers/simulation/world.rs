//! What is simulated, as numbers.

use std::time::Duration;

/// A run, its agents, and what is between them.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// How many agents.
    pub agents: u32,
    /// How many of them are asked for their time at once.
    pub asked_at_once: u32,
    /// Requests a second of all together.
    pub rate: f64,
    /// Length of the step, warm-up included.
    pub step: Duration,
    /// One way to the agent in the middle; half of them are within a quarter of it.
    pub way: Duration,
    /// What a message takes longer than its way, on average.
    pub jitter: Duration,
    /// What the run's thread takes to send or to read a message.
    pub handling: Duration,
    /// And to read a sample.
    pub sample_handling: Duration,
    /// What an agent takes to make a request ready.
    pub preparing: Duration,
    /// Bytes a second of the run's network, each way.
    pub bandwidth: f64,
    /// What all random numbers derive from.
    pub seed: u64,
}

/// A time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
