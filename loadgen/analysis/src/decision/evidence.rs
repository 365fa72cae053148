//! What goes into the rule and what comes out of it: plain data, free of histograms.

use crate::record::{CostTerms, Purpose};
use std::fmt;

/// One step as evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Offered, in requests per second.
    pub rps: f64,
    /// What it was measured for.
    pub purpose: Purpose,
    /// Requests scheduled in the window.
    pub requests: f64,
    /// Requests above each objective's limit, failed ones included: one for each objective.
    pub slow: Vec<f64>,
    /// Failed requests.
    pub failed: f64,
    /// How many requests say as much as an independent one, of whether a request is among the slow ones; at least 1.
    pub dependence: f64,
    /// Why it is evidence of nothing, where the instrument or the machine failed.
    pub usable: Result<(), String>,
    /// Whether the server could not keep up.
    pub saturated: bool,
    /// Requests of the tier for an inference; absent where the server did not say.
    pub tier_requests_per_inference: Option<f64>,
    /// Bytes of the tier for an inference; absent where the server did not say.
    pub tier_bytes_per_inference: Option<f64>,
    /// The step's own estimate of each objective's percentile, in microseconds; empty without requests.
    pub quantile_us: Vec<f64>,
    /// The block that it was measured in.
    pub block: u32,
}

/// A variant with its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub variant: String,
    /// What it costs; absent without prices.
    pub terms: Option<CostTerms>,
    /// Its steps, in the order in which they were measured.
    pub steps: Vec<StepEvidence>,
}

/// What time there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// Seconds spent so far.
    pub spent_s: f64,
    /// Seconds that a step takes all in all.
    pub step_s: f64,
}

/// What a block of steps is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// One step of each at a low rate.
    Scout,
    /// The likeliest answer and its strongest rival.
    Decide,
    /// Fresh steps of the winner.
    Confirm,
    /// The answer is known; what is left shows each variant at the demand and over its rates.
    Pictures,
}

/// A step to be measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// The candidate's index.
    pub candidate: usize,
    /// To offer, in requests per second.
    pub rps: f64,
    /// What for.
    pub purpose: Purpose,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Steps, in this order.
    Block {
        /// What they are for.
        phase: Phase,
        /// At least one.
        probes: Vec<Probe>,
    },
    /// Nothing.
    Stop(StopReason),
}

/// Why nothing comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// There is an answer, and every picture that it needs.
    Decided,
    /// No variant meets the objective.
    NoneMeets,
    /// The fresh steps say otherwise than those that chose.
    Contradicted,
    /// The time is used up.
    Budget,
    /// What is open cannot be measured: the machine disturbs it again and again, or there are no prices.
    Stuck,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decided => "decided",
            Self::NoneMeets => "no variant meets the objective",
            Self::Contradicted => "fresh steps contradict what was chosen",
            Self::Budget => "the time is used up",
            Self::Stuck => "what is open could not be measured",
        })
    }
}
