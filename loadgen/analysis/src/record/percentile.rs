//! The percentiles that summaries have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A percentile that summaries have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Percentile {
    /// The median.
    P50,
    /// The 95th.
    P95,
    /// The 99th.
    P99,
}

impl Percentile {
    /// As a share.
    #[must_use]
    pub const fn quantile(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P95 => 0.95,
            Self::P99 => 0.99,
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        })
    }
}
