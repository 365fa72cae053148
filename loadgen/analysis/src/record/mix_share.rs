//! Share of one part of a mix in the step that measured all parts together. Plain data of `run.json`;
//! `crate::costs::mix_shares` computes it.

use serde::{Deserialize, Serialize};

/// Shares of one part; those of all parts sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MixShare {
    /// Share of the inferences.
    pub inferences: f64,
    /// Share of hourly costs: the instance, the cache's memory in it, the tier's capacity.
    pub hour: f64,
    /// Share of costs by use: the tier's requests and bytes.
    pub tier: f64,
    /// Figure that divides the hour.
    pub hour_by: HourBy,
}

/// Figure that divides the hour of a mix, ordered so that the greater of two holds for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HourBy {
    /// Time of requests in sessions, as their replies report it.
    InferenceTime,
    /// Number of inferences, if replies do not report times.
    Inferences,
}
