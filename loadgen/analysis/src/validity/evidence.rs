//! Inputs of the rules: the repeats of a point, with the figures over all of them.

use crate::record::Repeat;
use std::borrow::Cow;

/// Inputs of the rules.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// Requests per second offered.
    pub offered_rps: f64,
    /// Requests in the percentiles.
    pub samples: u64,
    /// Latency p50, in microseconds, whatever the number of samples.
    pub p50_us: f64,
    /// Latency p99, in microseconds, whatever the number of samples.
    pub p99_us: f64,
    /// Send lag p99, in microseconds, whatever the number of samples.
    pub lag_p99_us: f64,
    /// Drifts of the latency, in words.
    pub drifts: Vec<String>,
    /// Repeats of the point.
    pub steps: Cow<'a, [Repeat]>,
}

impl Evidence<'_> {
    pub(super) fn sum(&self, of: impl Fn(&Repeat) -> f64) -> f64 {
        self.steps.iter().map(of).sum()
    }

    pub(super) fn scheduled(&self) -> f64 {
        self.sum(|step| step.scheduled as f64)
    }

    pub(super) fn failed(&self) -> f64 {
        self.sum(|step| step.errors.values().sum::<u64>() as f64)
    }
}
