//! What the points of a run say together, curve by curve: the highest valid rate, the knee, and the highest rate under
//! a service-level objective.
//!
//! In: nothing; the analysis fills these in from points. Out: plain data in `run.json`. Knows nothing of how rates were
//! chosen.

use super::{Factors, Interval, Percentile};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A service-level objective, and the range in which the highest rate that meets it was searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// What the latency must keep to.
    pub objective: Objective,
    /// Failed share of the requests above which a rate does not meet it.
    pub error_share: f64,
    /// The lowest rate asked, in requests per second.
    pub lowest_rps: f64,
    /// The highest rate asked, in requests per second.
    pub highest_rps: f64,
    /// How close, as a share, the highest rate that meets it and the next that does not were to come.
    pub resolution: f64,
}

/// Service-level objective; shown as `p99 < 20 ms`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Objective {
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
}

impl Objective {
    /// Limited percentile; `None` for the mean.
    #[must_use]
    pub const fn percentile(self) -> Option<Percentile> {
        match self {
            Self::Percentile { percentile, .. } => Some(percentile),
            Self::Mean { .. } => None,
        }
    }

    /// Latency limit, in microseconds.
    #[must_use]
    pub const fn limit_us(self) -> Option<f64> {
        match self {
            Self::Percentile { limit_us, .. } => Some(limit_us),
            Self::Mean { mean_limit_us } => Some(mean_limit_us),
        }
    }

    /// Share of slow requests from which on the objective is missed.
    #[must_use]
    pub const fn slow_share(self) -> f64 {
        match self {
            Self::Percentile { percentile, .. } => 1.0 - percentile.quantile(),
            Self::Mean { .. } => 0.5,
        }
    }

    /// Fewest samples with which the limited figure is shown.
    #[must_use]
    pub fn samples_needed(self) -> u64 {
        self.percentile().unwrap_or(Percentile::P50).samples_needed()
    }

    /// Name of the limited figure.
    #[must_use]
    pub const fn figure(self) -> &'static str {
        match self {
            Self::Percentile { percentile, .. } => percentile.name(),
            Self::Mean { .. } => "mean",
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Percentile { limit_us, .. }
        | Self::Mean {
            mean_limit_us: limit_us,
        }) = *self;
        let (limit, unit) = match limit_us {
            us if us < 1e3 => (us, "us"),
            us if us < 1e6 => (us / 1e3, "ms"),
            us => (us / 1e6, "s"),
        };
        write!(f, "{} < {limit} {unit}", self.figure())
    }
}

/// What one curve says: the points of one tier, cache state, mode and batch size over the rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What its points share; `offered_rps` is 0.
    pub factors: Factors,
    /// The highest rate with the verdict `valid`; absent where none has it.
    pub highest_valid_rps: Option<f64>,
    /// The rate at which the p95 begins to turn upwards; absent where the valid points show no bend.
    pub knee_rps: Option<f64>,
    /// How far the curve goes under the run's objective; absent without one, and where no point could be judged by it.
    pub slo: Option<SloFinding>,
}

/// How far a curve goes under an objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SloFinding {
    /// How the search ended.
    pub outcome: SloOutcome,
    /// The highest measured rate that meets the objective: a point of the run, with its cost and its percentiles. `lo` and `hi` are the
    /// 95 % interval of the highest rate by all steps of the curve; 0 and the highest rate asked where an end is open. Absent
    /// where the objective was never met.
    pub highest_rps: Option<Interval>,
    /// The next measured rate above, which does not meet the objective; where it was never met, the lowest measured one.
    pub not_met: Option<NotMet>,
    /// Measured rates that say otherwise: lower ones that do not meet the objective, higher ones that do. The result
    /// contradicts as few repeats as possible.
    pub contradicting_rps: Vec<f64>,
    /// Measured rates that say nothing of the server, for the instrument or the machine had failed, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<NotMet>,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SloOutcome {
    /// A rate meets the objective, and a higher one, as close as was asked, does not.
    Found,
    /// As `found`, but the two are further apart than was asked: the search did not come to its end, or was not made.
    Coarse,
    /// The highest rate asked meets it: what the server can do lies above.
    MetAtHighest,
    /// Every measured rate meets it, but the highest rate asked was not measured.
    MetAsFarAsMeasured,
    /// Not even the lowest measured rate meets it.
    NeverMet,
    /// No measured rate meets it, and lower ones, or all, could not be judged.
    Unknown,
}

/// A rate that does not meet the objective, or is not known to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotMet {
    /// Requests per second.
    pub rps: f64,
    /// Why, in words: `p99 31 ms`, or the verdict.
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
        ] {
            let read: Objective = serde_json::from_str(text).unwrap();
            assert_eq!(read.to_string(), shown);
            let again: Objective = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
            assert_eq!(again, read);
        }
    }
}
