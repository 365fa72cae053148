//! Figures of a tool. Plain data.

use serde::{Deserialize, Serialize};

/// Figures of a tool in one repeat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerFigures {
    pub(crate) iops: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p95_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) command: String,
}
