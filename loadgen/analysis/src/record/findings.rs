//! Findings of a run, curve by curve: the highest valid rate, the knee, and the highest rate under a service-level
//! objective.
//!
//! In: nothing; the analysis fills these in from points. Out: plain data in `run.json`. Knows nothing of the choice of
//! rates.

use super::percentile::samples_needed;
use super::{Factors, Interval, Percentile, StreamFigure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Service-level objective, and the search range of the highest rate that meets it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slo {
    /// Limit of the latency.
    pub objective: Objective,
    /// Failed share of the requests above which a rate misses the objective.
    pub error_share: f64,
    /// Lowest rate of the search, in requests per second.
    pub lowest_rps: f64,
    /// Highest rate of the search, in requests per second.
    pub highest_rps: f64,
    /// Target distance between the highest rate that meets the objective and the next that misses it, as a share.
    pub resolution: f64,
}

/// Service-level objective; shown as `p99 < 20 ms`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Objective {
    // First, because `percentile` and `limit_us` alone limit the latency.
    /// Upper limit of a percentile of streamed replies; shown as `ttft p99 < 300 ms`.
    Stream {
        /// Limited time.
        figure: StreamFigure,
        /// Limited percentile.
        percentile: Percentile,
        /// Limit in microseconds.
        limit_us: f64,
    },
    /// Upper limit of a latency percentile.
    Percentile {
        /// Limited percentile.
        percentile: Percentile,
        /// Limit in microseconds.
        limit_us: f64,
    },
    /// Upper limit of the mean latency.
    Mean {
        /// Limit in microseconds.
        mean_limit_us: f64,
    },
    /// Lower limit of goodput, the share of all requests with a good reply in time; shown as `99.5 % within 50 ms`.
    Goodput {
        /// Share of all requests, between 0 and 1.
        goodput_share: f64,
        /// Latest good reply, in microseconds.
        within_us: f64,
    },
}

impl Objective {
    /// Limited percentile of the latency; `None` for the mean.
    pub const fn percentile(self) -> Option<Percentile> {
        let Self::Percentile { percentile, .. } = self else {
            return None;
        };
        Some(percentile)
    }

    /// Limited figure of streamed replies; `None` for the latency.
    pub const fn stream(self) -> Option<StreamFigure> {
        let Self::Stream { figure, .. } = self else { return None };
        Some(figure)
    }

    /// Share of all requests that must keep to the limit; `None` for the mean.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Self::Percentile { percentile, .. } | Self::Stream { percentile, .. } => Some(percentile.quantile()),
            Self::Mean { .. } => None,
            Self::Goodput { goodput_share, .. } => Some(goodput_share),
        }
    }

    /// Limit, in microseconds.
    pub const fn limit_us(self) -> f64 {
        match self {
            Self::Percentile { limit_us, .. } | Self::Stream { limit_us, .. } => limit_us,
            Self::Mean { mean_limit_us } => mean_limit_us,
            Self::Goodput { within_us, .. } => within_us,
        }
    }

    /// Limit of a time that begins at the scheduled send and so includes the send lag; `None` for gaps.
    pub fn limit_since_due_us(self) -> Option<f64> {
        let is_since_due = self.stream().is_none_or(StreamFigure::is_since_due);
        is_since_due.then(|| self.limit_us())
    }

    /// Share of slow requests from which the objective is missed.
    pub const fn slow_share(self) -> f64 {
        match self.quantile() {
            Some(quantile) => 1.0 - quantile,
            None => 0.5,
        }
    }

    /// Minimum number of samples with which the limited figure is shown.
    pub fn samples_needed(self) -> u64 {
        samples_needed(self.quantile().unwrap_or(0.5))
    }

    /// Name of the limited figure.
    pub fn figure(self) -> String {
        let of = self.stream().map_or_else(String::new, |stream| format!("{stream} "));
        let percentile = |quantile| format!("{of}p{}", percent(quantile));
        self.quantile().map_or_else(|| "mean".into(), percentile)
    }
}

/// Share in percent, with at most four decimals.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, unit) = match self.limit_us() {
            us if us < 1e3 => (us, "us"),
            us if us < 1e6 => (us / 1e3, "ms"),
            us => (us / 1e6, "s"),
        };
        match *self {
            Self::Goodput { goodput_share, .. } => write!(f, "{} % within {limit} {unit}", percent(goodput_share)),
            Self::Percentile { .. } | Self::Stream { .. } | Self::Mean { .. } => {
                write!(f, "{} < {limit} {unit}", self.figure())
            }
        }
    }
}

/// Finding of one curve: the points of one tier, cache state, mode and batch size over the rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Factors that the points share; `offered_rps` is 0.
    pub factors: Factors,
    /// Highest rate with the verdict `valid`; absent without a valid point.
    pub highest_valid_rps: Option<f64>,
    /// Rate at which the p95 begins to turn upwards; absent if the valid points show no bend.
    pub knee_rps: Option<f64>,
    /// Highest rate under the run's objective; absent without an objective, or if no point could be judged by it.
    pub slo: Option<SloFinding>,
}

/// Highest rate of a curve under an objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloFinding {
    /// Outcome of the search.
    pub outcome: SloOutcome,
    /// Highest measured rate that meets the objective: a point of the run, with its cost and its percentiles. `lo` and
    /// `hi` are the 95 % interval of the highest rate by all steps of the curve; an open end is 0 or the highest rate
    /// of the search. Absent if the objective was never met.
    pub highest_rps: Option<Interval>,
    /// Next measured rate above, which misses the objective; the lowest measured rate if the objective was never met.
    pub not_met: Option<NotMet>,
    /// Measured rates that contradict the result: lower rates that miss the objective, higher rates that meet it. The
    /// result contradicts as few repeats as possible.
    pub contradicting_rps: Vec<f64>,
    /// Measured rates without evidence about the server, because the instrument or the machine failed, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<NotMet>,
}

/// Outcome of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SloOutcome {
    /// A rate meets the objective, and a higher rate within the resolution misses it.
    Found,
    /// Like `found`, but the two rates are further apart than the resolution: the search stopped early, or the run had
    /// none.
    Coarse,
    /// The highest rate of the search meets the objective; the server's limit is higher.
    MetAtHighest,
    /// Every measured rate meets the objective, but the highest rate of the search was not measured.
    MetAsFarAsMeasured,
    /// Even the lowest measured rate misses the objective.
    NeverMet,
    /// No measured rate meets the objective, and lower rates, or all, could not be judged.
    Unknown,
}

/// Rate that misses the objective, or is not known to meet it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotMet {
    /// Requests per second.
    pub rps: f64,
    /// Reason in words: `p99 31 ms`, or the verdict.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_read_as_they_are_written() {
        let objective = |percentile, limit_us| Objective::Percentile { percentile, limit_us }.to_string();
        assert_eq!(objective(Percentile::P99, 20_000.0), "p99 < 20 ms");
        assert_eq!(objective(Percentile::P50, 300.0), "p50 < 300 us");
        assert_eq!(objective(Percentile::P95, 1.5e6), "p95 < 1.5 s");
        assert_eq!(objective(Percentile::P999, 50_000.0), "p99.9 < 50 ms");
        let mean = Objective::Mean { mean_limit_us: 5_000.0 };
        assert_eq!(mean.to_string(), "mean < 5 ms");
    }

    #[test]
    fn objectives_of_earlier_results_are_read() {
        for (text, shown) in [
            (r#"{"percentile":"p99","limit_us":2e4}"#, "p99 < 20 ms"),
            (r#"{"percentile":"p99.9","limit_us":2e4}"#, "p99.9 < 20 ms"),
            (r#"{"mean_limit_us":5e3}"#, "mean < 5 ms"),
            (
                r#"{"figure":"ttft","percentile":"p99","limit_us":3e5}"#,
                "ttft p99 < 300 ms",
            ),
        ] {
            let read: Objective = serde_json::from_str(text).unwrap();
            assert_eq!(read.to_string(), shown);
            let again: Objective = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
            assert_eq!(again, read);
        }
    }
}
