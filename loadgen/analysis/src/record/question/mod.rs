//! Question of a lab: an objective, a demand, the figure to minimise, and the confidence.

mod answer;
mod variant;

pub use answer::{Answer, AnswerOutcome, MeetsObjective, OpenQuestion, Ranked};
pub use variant::{StageFill, StageState, Variant};

use super::{Mode, Objective};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Question to a lab: the variant that meets the objective at the demand at the lowest cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Maximum utilisation of an instance, as a share of the highest rate that meets the objective.
    pub utilisation: f64,
    /// Minimum number of instances.
    pub least_instances: u32,
    /// Highest rate of one instance considered, in requests per second.
    pub highest_rps: f64,
}

/// Demand in requests per second over all instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Average over the month, which determines the cost of requests and bytes.
    pub average_rps: f64,
    /// Peak, which determines the number of instances.
    pub peak_rps: f64,
}

/// Figure that the best variant minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Minimise {
    /// Dollars a month at the demand.
    UsdPerMonth,
    /// Dollars per 10,000 inferences: at the demand, or without one at the highest rate under the objective.
    #[serde(rename = "usd_per_10k")]
    UsdPer10k,
    /// Percentile of the first objective, at the demand.
    P99,
    /// Number of instances: the highest rate under the objective wins.
    Instances,
}

impl fmt::Display for Minimise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UsdPerMonth => "usd_per_month",
            Self::UsdPer10k => "usd_per_10k",
            Self::P99 => "p99",
            Self::Instances => "instances",
        })
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objectives: Vec<String> = self.objectives.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{}, errors < {} %",
            objectives.join(", "),
            trim(100.0 * self.error_share)
        )?;
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
