//! Parameters of the simulation.

use clap::Args;
use std::path::PathBuf;

/// A run, its agents, and the network between them.
#[derive(Debug, Clone, Args)]
pub(crate) struct World {
    /// Folder of the table
    #[arg(long, default_value = "results/agents")]
    pub(super) out: PathBuf,
    /// Requests per second of each agent
    #[arg(long, default_value_t = 1_000.0, value_parser = positive)]
    pub(super) rate_each: f64,
    /// Length of the step in seconds, warm-up included
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub(super) step_s: f64,
    /// One-way delay of the median agent in microseconds; half of the agents are within a quarter of it
    #[arg(long, default_value_t = 250.0, value_parser = positive)]
    pub(super) way_us: f64,
    /// Mean extra delay of a message in microseconds
    #[arg(long, default_value_t = 30.0, value_parser = positive)]
    pub(super) jitter_us: f64,
    /// Time of the run's thread to send or read one message, in microseconds
    #[arg(long, default_value_t = 15.0, value_parser = positive)]
    pub(super) handling_us: f64,
    /// Time of the run's thread to read one sample, in nanoseconds
    #[arg(long, default_value_t = 150.0, value_parser = positive)]
    pub(super) sample_ns: f64,
    /// Time of an agent to prepare a request, in microseconds
    #[arg(long, default_value_t = 3.0, value_parser = positive)]
    pub(super) preparing_us: f64,
    /// Bandwidth of the run's network, each way, in gigabits per second
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    pub(super) network_gbit: f64,
    /// Allowed skew of the agents' starts in microseconds: a plan's `limits.start_skew_us`
    #[arg(long, default_value_t = 2_000.0, value_parser = positive)]
    pub(super) start_skew_us: f64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 20_261_123)]
    pub(super) seed: u64,
}

impl World {
    /// Bytes per second of the run's network, each way.
    pub(super) fn bandwidth(&self) -> f64 {
        self.network_gbit * 1e9 / 8.0
    }
}

/// Microseconds as whole nanoseconds.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= 1e9 => Ok(number),
        _ => Err("give a number above 0, at most 1e9".into()),
    }
}
