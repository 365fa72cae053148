//! Answer of a lab: the shape of `answer.json`.

use super::super::Grade;
use super::Question;
use serde::{Deserialize, Serialize};

/// The answer to a question, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Question.
    pub question: Question,
    /// Outcome.
    pub outcome: AnswerOutcome,
    /// The best variant: the answer where `decided`, the most likely one where `undecided`, absent where `none`.
    pub best: Option<String>,
    /// Probability that `best` is right, by the rule that stopped: the question's confidence if `decided`. If `undecided`, how likely
    /// `best` is so far, which is less; 0 if it is likely enough and open for another reason.
    pub confidence: f64,
    /// True if steps that did not choose the best confirmed it.
    pub confirmed: bool,
    /// Seconds of the budget that were used; in results made before they were kept, those of the steps' windows.
    pub spent_s: f64,
    /// Steps measured, and of those the ones that something foreign disturbed.
    pub steps: u32,
    /// See `steps`.
    pub disturbed_steps: u32,
    /// Change of the control point from the lab's first half to its second, as a share; absent without enough steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_drift: Option<f64>,
    /// Every variant, the best first.
    pub ranking: Vec<Ranked>,
    /// Open questions, with the time that they would take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenQuestion>,
}

/// Outcome of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerOutcome {
    /// One variant is best, or within the tie of the best, and steps that did not choose it confirm it.
    Decided,
    /// The budget ended before that was known or confirmed, or fresh steps said otherwise.
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
    /// Not known.
    Unknown,
}

/// One variant of a ranking. Latencies in microseconds, rates in requests per second of one instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Its name.
    pub variant: String,
    /// The kind of its tier.
    pub tier: String,
    /// Verdict at the demand.
    pub outcome: MeetsObjective,
    /// The rate of one instance that its p99 is told at: the demand's share of one of its instances; the measured rate
    /// next to it.
    pub at_rps: Option<f64>,
    /// p99 there, with its interval; absent with too few samples.
    pub p99_us: Option<f64>,
    /// See `p99_us`.
    pub p99_us_lo: Option<f64>,
    /// See `p99_us`; absent for a rough one.
    pub p99_us_hi: Option<f64>,
    /// Grade of the p99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_grade: Option<Grade>,
    /// Reason for no p99: the verdict of the point at that rate, or too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_missing: Option<String>,
    /// The highest rate under the objective: between the highest that certainly meets it and the lowest that certainly
    /// does not, which is absent where every rate asked meets it.
    pub highest_rps: Option<f64>,
    /// See `highest_rps`.
    pub highest_rps_lo: Option<f64>,
    /// See `highest_rps`.
    pub highest_rps_hi: Option<f64>,
    /// True if no measured rate breaks the objective: the search ended at `highest_rps`, and not the server.
    #[serde(default)]
    pub highest_is_bound: bool,
    /// Instances at the demand; an upper bound if it is above `instances_lo` and `highest_is_bound`.
    pub instances: Option<u32>,
    /// Instances that would be enough at the upper end of `highest_rps`, or at the highest rate of the question without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances_lo: Option<u32>,
    /// Dollars a month at the demand, with its interval.
    pub usd_per_month: Option<f64>,
    /// See `usd_per_month`.
    pub usd_per_month_lo: Option<f64>,
    /// See `usd_per_month`.
    pub usd_per_month_hi: Option<f64>,
    /// Dollars for 10,000 inferences, at the same place.
    pub usd_per_10k: Option<f64>,
    /// Parts of the month in dollars, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usd_parts: Vec<(String, f64)>,
    /// Dominant part of its slowest requests.
    pub dominant_part: Option<String>,
    /// The share of that part, from 0 to 1.
    pub dominant_share: Option<f64>,
    /// Why it is where it is, in a sentence.
    pub why: String,
    /// Steps spent on it.
    pub steps: u32,
}

/// A question that the lab left open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// The variants that it is about: one whose objective is unknown, or two that were not told apart.
    pub variants: Vec<String>,
    /// Open question, in a sentence.
    pub what: String,
    /// Estimated extra measuring time in seconds; absent if it cannot be estimated.
    pub more_s: Option<f64>,
}
