//! Question of a lab: an objective, a demand, the figure to minimise, and the confidence; its variants, and its answer, the shape of
//! `answer.json`.

use super::{Grade, Mode, Objective, one};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Question to a lab: the variant that meets the objective at the demand at the lowest cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Objectives, all of which must be met: `p99 < 50 ms`.
    pub objectives: Vec<Objective>,
    /// Failed share of the requests above which the objective is missed.
    pub error_share: f64,
    /// Demand; without it, the question is the highest rate of one instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Figure that the best variant minimises.
    pub minimise: Minimise,
    /// Kind of request.
    pub mode: Mode,
    /// Entities per request.
    pub batch_size: u32,
    /// Time budget for measuring, in seconds.
    pub budget_s: f64,
    /// Probability with which the answer must be right.
    pub confidence: f64,
    /// Tie margin: share within which two variants are equally good.
    pub tie: f64,
    /// Maximum utilisation of an instance, as a share of the highest rate that meets the objective; ignored if a p99 is
    /// minimised.
    pub utilisation: f64,
    /// Minimum number of instances.
    pub least_instances: u32,
    /// Highest rate of one instance considered, in requests per second.
    pub highest_rps: f64,
}

/// Demand in requests per second over all instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Average over the month, which determines the cost of requests and bytes.
    pub average_rps: f64,
    /// Peak, which determines the number of instances.
    pub peak_rps: f64,
}

/// Figure that the best variant minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Minimise {
    /// Dollars a month at the demand.
    UsdPerMonth,
    /// Dollars per 10,000 inferences: at the demand, or without one at the highest rate under the objective.
    #[serde(rename = "usd_per_10k")]
    #[strum(to_string = "usd_per_10k")]
    UsdPer10k,
    /// Percentile of the first objective, at the demand.
    P99,
    /// Number of instances: the highest rate under the objective wins.
    Instances,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objectives: Vec<String> = self.objectives.iter().map(ToString::to_string).collect();
        let (objectives, errors) = (objectives.join(", "), trim(100.0 * self.error_share));
        write!(f, "{objectives}, errors < {errors} %")?;
        if let Some(demand) = &self.demand {
            write!(f, ", at {}/s", trim(demand.peak_rps))?;
        }
        write!(f, ": least {}", self.minimise)
    }
}

/// Formats a number without insignificant digits.
fn trim(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Answer to a question, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Number of disturbed steps.
    pub disturbed_steps: u32,
    /// All variants, the best first.
    pub ranking: Vec<Ranked>,
    /// Open questions, with the time that they need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<OpenQuestion>,
}

impl Answer {
    /// Returns the best variant with its figures.
    pub fn best(&self) -> Option<&Ranked> {
        let is_best = |ranked: &&Ranked| Some(&ranked.variant) == self.best.as_ref();
        self.ranking.iter().find(is_best)
    }
}

/// Outcome of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranked {
    /// Name of the variant.
    pub variant: String,
    /// Kind of its tier.
    pub tier: String,
    /// Verdict at the demand.
    pub outcome: MeetsObjective,
    /// Rate of one instance at which its p99 is given: its share of the demand, or the nearest rate measured above it.
    /// Without a demand: the rate nearest to the highest that certainly meets the objective.
    pub at_rps: Option<f64>,
    /// p99 at that rate; absent with too few samples.
    pub p99_us: Option<f64>,
    /// Lower end of `p99_us`. Without a p99, for a variant that misses the objective, the latency that ten requests exceed.
    pub p99_us_lo: Option<f64>,
    /// Upper end of `p99_us`; absent for a rough percentile.
    pub p99_us_hi: Option<f64>,
    /// Grade of the p99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_grade: Option<Grade>,
    /// Reason for a missing p99: the verdict of the point at that rate, too few samples, or no step there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_missing: Option<String>,
    /// Likely highest rate under the objective, between the highest that certainly meets it and the lowest that
    /// certainly misses it. The latter is absent if every measured rate meets it.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OpenQuestion {
    /// Variants of the question: one whose objective is unknown, or two that could not be separated.
    pub variants: Vec<String>,
    /// Open question, in a sentence.
    pub what: String,
    /// Estimated extra measuring time in seconds; absent if it cannot be estimated.
    pub more_s: Option<f64>,
}

/// One way to store models and features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// Name in results.
    pub name: String,
    /// Kind of its tier: `nvme`, `nfs`, `s3`, …
    pub tier: String,
    /// Origin: `real`, `embedded`, or `emulated` with its profile and the profile's source.
    pub origin: String,
    /// Profile of an emulated origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Copy on a local folder, with its content at the start of measuring; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StageState>,
    /// Layout of its feature tables; absent for row files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Name of the cache state.
    pub cache: String,
    /// Capacity of the cache as a share of the table; 0 without a cache.
    pub cache_share: f64,
    /// Entry of the price list for its tier; absent if the instance's price covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Instance type for its price; default: the plan's instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Number of servers in a fleet that share its tier; 1 without a fleet.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub servers: u32,
    /// Keys of the server's config set for this variant, as `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(servers: &u32) -> bool {
    *servers == 1
}

/// Content of a stage at the start of measuring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageState {
    /// Preparation before measuring.
    pub prepared: StageFill,
    /// True if all servers of a fleet share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// Bytes held at the start.
    pub held_bytes: u64,
    /// Maximum bytes.
    pub capacity_bytes: u64,
}

/// Preparation of a stage before measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageFill {
    /// Empty stage.
    Empty,
    /// Stage filled by reading every requested row once.
    Filled,
}
