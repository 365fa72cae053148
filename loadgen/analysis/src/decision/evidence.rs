//! Input and output of the rule: plain data, free of histograms.

use crate::record::{CostTerms, Purpose};

/// Evidence of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Offered rate in requests per second.
    pub rps: f64,
    /// Purpose of the measurement.
    pub purpose: Purpose,
    /// Requests scheduled in the window.
    pub requests: f64,
    /// Requests above the limit of each objective, failed requests included.
    pub slow: Vec<f64>,
    /// Failed requests.
    pub failed: f64,
    /// Requests per independent observation of being slow; at least 1.
    pub dependence: f64,
    /// Reason why the step is no evidence, if the instrument or the machine failed.
    pub usable: Result<(), String>,
    /// True if the server could not keep up.
    pub saturated: bool,
    /// Requests to the tier per inference; `None` if the server did not report them.
    pub tier_requests_per_inference: Option<f64>,
    /// Bytes from the tier per inference; `None` if the server did not report them.
    pub tier_bytes_per_inference: Option<f64>,
    /// The step's own estimate of each objective's percentile, in microseconds; empty without requests.
    pub quantile_us: Vec<f64>,
    /// Number of the block that the step belongs to.
    pub block: u32,
}

/// Variant with its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Name of the variant.
    pub variant: String,
    /// Prices; `None` if missing.
    pub terms: Option<CostTerms>,
    /// Steps in the order of measurement.
    pub steps: Vec<StepEvidence>,
}

/// Time spent and time per step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Time {
    /// Seconds spent so far.
    pub spent_s: f64,
    /// Seconds per step, including its overhead.
    pub step_s: f64,
}

/// Purpose of a block of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
pub enum Phase {
    /// One step of each candidate at a low rate.
    #[strum(to_string = "scouting: one short step of each variant")]
    Scout,
    /// Steps of the likeliest answer and its strongest rival.
    #[strum(to_string = "deciding: the likeliest answer and its strongest rival in turn")]
    Decide,
    /// Fresh steps of the winner.
    #[strum(to_string = "confirming: fresh steps of the best")]
    Confirm,
    /// Fresh steps of the answer at the rate that each of its instances carries at the demand.
    #[strum(to_string = "confirming: fresh steps of the best at the rate that an instance carries at the demand")]
    AtDemand,
    /// Further steps that show each variant at the demand and over its rates, once the answer is known.
    #[strum(to_string = "answered; the time that is left goes to curves and percentiles")]
    Charts,
}

/// Step to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Index of the candidate.
    pub candidate: usize,
    /// Rate to offer, in requests per second.
    pub rps: f64,
    /// Purpose of the step.
    pub purpose: Purpose,
}

/// Next action of a lab.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Steps, in this order.
    Block {
        /// Purpose of the block.
        phase: Phase,
        /// Steps, at least one.
        probes: Vec<Probe>,
    },
    /// No further steps, with the reason.
    Stop(StopReason),
}

/// Reason to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
pub enum StopReason {
    /// The answer is known and every variant is shown as planned.
    #[strum(to_string = "decided")]
    Decided,
    /// No variant meets the objective.
    #[strum(to_string = "no variant meets the objective")]
    NoneMeets,
    /// Fresh steps contradict the steps that chose the answer.
    #[strum(to_string = "fresh steps contradict the choice")]
    Contradicted,
    /// The time is used up.
    #[strum(to_string = "the time is used up")]
    Budget,
    /// The open question cannot be measured: the machine disturbs the steps repeatedly, or prices are missing.
    #[strum(to_string = "the open question could not be measured")]
    Stuck,
}
