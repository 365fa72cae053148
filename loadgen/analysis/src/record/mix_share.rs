//! What a part of a mix has of the step that all parts were measured in together. Plain data of `run.json`; how the shares
//! are found, `crate::costs::mix_shares` says.

use serde::{Deserialize, Serialize};

/// Shares of one part; those of all parts sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MixShare {
    /// Of the inferences.
    pub inferences: f64,
    /// Of what is paid by the hour: the instance, the cache's memory in it, the tier's capacity.
    pub hour: f64,
    /// Of what is paid by use: the tier's requests and bytes.
    pub tier: f64,
    /// What the hour was divided by.
    pub hour_by: HourBy,
}

/// What the hour of a mix is divided by; in order, so that the greater of two is what both can be said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HourBy {
    /// The time that requests spent in sessions, as their replies say.
    InferenceTime,
    /// The number of inferences, where replies do not say.
    Inferences,
}
