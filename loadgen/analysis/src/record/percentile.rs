//! Estimates with intervals, and the percentiles of summaries with their grades.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// Estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Estimated value.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end; infinite without an upper bound, and `null` in JSON.
    #[serde(deserialize_with = "open_end")]
    pub hi: f64,
}

impl Interval {
    /// Creates an interval from a value and the two ends.
    pub const fn new(value: f64, lo: f64, hi: f64) -> Self {
        Self { value, lo, hi }
    }

    /// Value without uncertainty.
    pub const fn exact(value: f64) -> Self {
        Self::new(value, value, value)
    }

    /// Returns the interval of a rising function of the value.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self::new(of(self.value), of(self.lo), of(self.hi))
    }
}

fn open_end<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Minimum number of samples beyond a printed percentile.
const MIN_BEYOND: f64 = 10.0;

/// Latency percentile of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Percentile {
    /// 50th percentile.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    P999,
}

impl Percentile {
    /// Every percentile, ascending.
    pub const ALL: [Self; 5] = [Self::P50, Self::P90, Self::P95, Self::P99, Self::P999];

    /// Returns the percentile with this name, such as `p99.9`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|percentile| percentile.name() == name)
    }

    /// Name in plans and reports.
    pub const fn name(self) -> &'static str {
        ["p50", "p90", "p95", "p99", "p99.9"][self as usize]
    }

    /// Returns the minimum samples, over all repeats, with which it is shown: 10 of them lie above it.
    pub fn samples_needed(self) -> u64 {
        samples_needed(self.quantile())
    }

    /// Share of the requests at or below the percentile.
    pub const fn quantile(self) -> f64 {
        [0.5, 0.9, 0.95, 0.99, 0.999][self as usize]
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the minimum samples with which the percentile of this share is shown: 10 of them lie above it, and 10 below.
pub fn samples_needed(share: f64) -> u64 {
    let beyond = share.min(1.0 - share).max(f64::MIN_POSITIVE);
    (MIN_BEYOND / beyond - 1e-6).ceil() as u64
}

/// Trust in a percentile's interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The interval contains the true percentile in 95 % of all runs.
    Solid,
    /// The value is shown without an upper bound.
    Rough,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_an_upper_end_is_written_and_read() {
        for hi in [3.5, f64::INFINITY] {
            let interval = Interval {
                value: 2.0,
                lo: 1.0,
                hi,
            };
            let text = serde_json::to_string(&interval).unwrap();
            assert_eq!(text.contains("null"), hi.is_infinite());
            assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), interval);
        }
    }
}
