//! Question of a lab: an objective, a demand, the figure to minimise, and the confidence.

mod answer;
mod variant;

pub use answer::{Answer, AnswerOutcome, MeetsObjective, OpenQuestion, Ranked};
pub use variant::{StageFill, StageState, Variant};

use super::{Mode, Objective};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A question to a lab: which variant meets the objective at the demand, and for the least.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Every one of these must hold: `p99 < 50 ms`.
    pub objectives: Vec<Objective>,
    /// Failed share of the requests above which the objective is not met.
    pub error_share: f64,
    /// Demand; without it, the question is the highest rate of one instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
    /// Figure that the best variant minimises.
    pub minimise: Minimise,
    /// The kind of request that is asked about.
    pub mode: Mode,
    /// Entities per request.
    pub batch_size: u32,
    /// Seconds that the measuring may take.
    pub budget_s: f64,
    /// Probability with which the answer must be right.
    pub confidence: f64,
    /// The share by which two variants may differ and be as good as each other.
    pub tie: f64,
    /// Instances are filled to this share of the highest rate that meets the objective, at most.
    pub utilisation: f64,
    /// Instances that there must be, whatever one of them carries.
    pub least_instances: u32,
    /// The highest rate of one instance that is asked about, in requests per second.
    pub highest_rps: f64,
}

/// Requests per second of all instances together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Over the month: what requests and bytes are paid for.
    pub average_rps: f64,
    /// At the peak: what there must be instances for.
    pub peak_rps: f64,
}

/// Figure that the best variant minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Minimise {
    /// Dollars a month at the demand.
    UsdPerMonth,
    /// Dollars for 10,000 inferences: at the demand, or without one at the highest rate under the objective.
    #[serde(rename = "usd_per_10k")]
    UsdPer10k,
    /// The percentile of the first objective, at the demand.
    P99,
    /// Instances: the highest rate under the objective wins.
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

/// A number without digits that say nothing.
fn trim(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}
