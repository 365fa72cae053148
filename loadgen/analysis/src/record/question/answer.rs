//! Answer of a lab: the shape of `answer.json`.

use super::super::Grade;
use super::Question;
use serde::{Deserialize, Serialize};

/// Answer to a question, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Question being answered.
    pub question: Question,
    /// Outcome of the lab.
    pub outcome: AnswerOutcome,
    /// Best variant: the answer if `decided`, the likeliest one if `undecided`, absent if `none`.
    pub best: Option<String>,
    /// Probability that `best` is right, by the stopping rule: the question's confidence if `decided`. If `undecided`,
    /// the lower probability so far; 0 if it is high enough and the answer is open for another reason.
    pub confidence: f64,
    /// True if steps that did not choose the best confirmed it.
    pub confirmed: bool,
    /// Seconds of the budget used; in older results, the seconds of the steps' windows.
    pub spent_s: f64,
    /// Number of measured steps.
    pub steps: u32,
    /// Number of disturbed steps among them.
    pub disturbed_steps: u32,
    /// Change of the control point from the lab's first half to its second, as a share; absent without enough steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_drift: Option<f64>,
    /// All variants, the best first.
    pub ranking: Vec<Ranked>,
    /// Open questions, with the time that they need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenQuestion>,
}

/// Outcome of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerOutcome {
    /// One variant is best, or within the tie margin of the best, and steps that did not choose it confirm it.
    Decided,
    /// The budget ended before the answer was known or confirmed, or fresh steps contradicted it.
    Undecided,
    /// No variant meets the objective.
    None,
}

/// Verdict on a variant at the demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeetsObjective {
    /// The variant meets the objective.
    Met,
    /// The variant misses the objective at any rate that would serve the demand.
    NotMet,
    /// The verdict is unknown.
    Unknown,
}

/// One variant of a ranking. Latencies in microseconds, rates in requests per second of one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Name of the variant.
    pub variant: String,
    /// Kind of its tier.
    pub tier: String,
    /// Verdict at the demand.
    pub outcome: MeetsObjective,
    /// Rate of one instance at which its p99 is given: its share of the demand, at the nearest measured rate.
    pub at_rps: Option<f64>,
    /// p99 at that rate; absent with too few samples.
    pub p99_us: Option<f64>,
    /// Lower end of `p99_us`.
    pub p99_us_lo: Option<f64>,
    /// Upper end of `p99_us`; absent for a rough percentile.
    pub p99_us_hi: Option<f64>,
    /// Grade of the p99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_grade: Option<Grade>,
    /// Reason for a missing p99: the verdict of the point at that rate, or too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_missing: Option<String>,
    /// Likely highest rate under the objective, between the highest that certainly meets it and the lowest that
    /// certainly misses it. The latter is absent if every rate asked meets it.
    pub highest_rps: Option<f64>,
    /// Highest rate that certainly meets the objective.
    pub highest_rps_lo: Option<f64>,
    /// Lowest rate that certainly misses the objective.
    pub highest_rps_hi: Option<f64>,
    /// True if no measured rate misses the objective: the search ended at `highest_rps`, not the server.
    #[serde(default)]
    pub highest_is_bound: bool,
    /// Instances at the demand; an upper bound if it is above `instances_lo` and `highest_is_bound`.
    pub instances: Option<u32>,
    /// Instances at the upper end of `highest_rps`, or at the highest rate of the question without an upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances_lo: Option<u32>,
    /// Dollars per month at the demand.
    pub usd_per_month: Option<f64>,
    /// Lower end of `usd_per_month`.
    pub usd_per_month_lo: Option<f64>,
    /// Upper end of `usd_per_month`.
    pub usd_per_month_hi: Option<f64>,
    /// Dollars per 10,000 inferences, at the same rate.
    pub usd_per_10k: Option<f64>,
    /// Parts of the month in dollars, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usd_parts: Vec<(String, f64)>,
    /// Dominant part of its slowest requests.
    pub dominant_part: Option<String>,
    /// Share of that part, from 0 to 1.
    pub dominant_share: Option<f64>,
    /// Reason for its position, in a sentence.
    pub why: String,
    /// Steps of this variant.
    pub steps: u32,
}

/// Question that the lab left open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Variants of the question: one whose objective is unknown, or two that could not be separated.
    pub variants: Vec<String>,
    /// Open question, in a sentence.
    pub what: String,
    /// Estimated extra measuring time in seconds; absent if it cannot be estimated.
    pub more_s: Option<f64>,
}
