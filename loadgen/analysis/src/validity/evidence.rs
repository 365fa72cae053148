//! Inputs of the rules. In: the repeats of a point. Out: their counts, as far as a rule needs them.

use crate::record::{Interval, Repeat, worst_start};

/// Inputs of the rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
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
    /// Evidence of each repeat.
    pub steps: Vec<StepEvidence>,
}

/// One repeat, as far as the rules need it.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// Requests scheduled in the window.
    pub scheduled: u64,
    /// Failed requests, by reason.
    pub failed: Vec<(String, u64)>,
    /// Examples of some reasons.
    pub examples: Vec<(String, String)>,
    /// Good replies that arrived in the window.
    pub replies: f64,
    /// True if every user was busy at some ticket.
    pub in_flight_limit_hit: bool,
    /// Mean number in flight.
    pub mean_in_flight: f64,
    /// Growth of the latency, in microseconds per second.
    pub backlog_slope: Interval,
    /// Reason for which the reads into device memory are not the requested ones.
    pub device_shortfall: Option<String>,
    /// Foreign disturbance.
    pub disturbed: Option<String>,
    /// Agent with the largest possible distance from the common start, and that distance in microseconds.
    pub start_skew: Option<(String, f64)>,
}

impl From<&Repeat> for StepEvidence {
    fn from(repeat: &Repeat) -> Self {
        Self {
            window_s: repeat.window_s,
            scheduled: repeat.scheduled,
            failed: repeat
                .errors
                .iter()
                .map(|(reason, count)| (reason.clone(), *count))
                .collect(),
            examples: repeat.examples.clone().into_iter().collect(),
            replies: repeat.achieved_rps * repeat.window_s,
            in_flight_limit_hit: repeat.in_flight_limit_hit,
            mean_in_flight: repeat.mean_in_flight,
            backlog_slope: repeat.backlog_slope,
            device_shortfall: repeat
                .server
                .as_ref()
                .and_then(|server| server.device_reads.as_ref()?.shortfall()),
            disturbed: repeat.disturbed.clone(),
            start_skew: worst_start(&repeat.agents).map(|worst| (worst.agent.clone(), worst.skew_us())),
        }
    }
}

impl Evidence {
    pub(super) fn sum(&self, of: impl Fn(&StepEvidence) -> f64) -> f64 {
        self.steps.iter().map(of).sum()
    }

    pub(super) fn scheduled(&self) -> f64 {
        self.sum(|step| step.scheduled as f64)
    }

    pub(super) fn failed(&self) -> f64 {
        self.sum(|step| step.failed.iter().map(|(_, count)| *count as f64).sum())
    }
}
