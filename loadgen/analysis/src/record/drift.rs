//! Drifts of the latency in a summary. Plain data; `crate::validity::stationarity` finds them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Figure that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftOf {
    /// Median latency.
    P50,
    /// Mean of the slowest 1 %, from the p99 upwards.
    SlowestPercent,
}

/// Form of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftHow {
    /// Drift from the start to the end of every repeat.
    Within,
    /// Drift from the first repeat to the last.
    Across,
    /// Jump after the repeat with this number, counted from 1.
    After(u32),
}

/// Change of the latency that is significant and large enough to matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Drifting figure.
    pub of: DriftOf,
    /// Form of the drift.
    pub how: DriftHow,
    /// Value at the start, in microseconds.
    pub from_us: f64,
    /// Value at the end, in microseconds.
    pub to_us: f64,
    /// Values in between, in microseconds: repeat by repeat, or by sections of the window as means over the repeats.
    pub course_us: Vec<f64>,
}

impl fmt::Display for DriftOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::P50 => "p50",
            Self::SlowestPercent => "the mean of the slowest 1 %",
        })
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, from, to) = (self.of, milliseconds(self.from_us), milliseconds(self.to_us));
        let moves = if self.to_us > self.from_us { "rises" } else { "falls" };
        match self.how {
            DriftHow::Within => write!(f, "{of} {moves} from {from} to {to} within every repeat")?,
            DriftHow::Across => write!(f, "{of} {moves} from {from} to {to} over the repeats")?,
            DriftHow::After(number) => write!(
                f,
                "{of} is {from} up to repeat {number} and {to} from repeat {} on",
                number + 1
            )?,
        }
        write!(f, " {}", sparkline(&self.course_us))
    }
}

fn milliseconds(us: f64) -> String {
    match us / 1e3 {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        ms if ms >= 1.0 => format!("{ms:.2} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

/// Draws eight heights on a logarithmic scale, from the smallest value to the largest.
fn sparkline(values: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let logs: Vec<f64> = values.iter().map(|us| us.max(1.0).ln()).collect();
    let (least, most) = logs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), log| {
        (a.min(*log), b.max(*log))
    });
    let span = (most - least).max(1e-9);
    logs.iter()
        .map(|log| HEIGHTS[((7.0 * (log - least) / span).round() as usize).min(7)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_says_what_moved_from_where_to_where_and_shows_it() {
        let drift = |of, how, course_us: &[f64]| Drift {
            of,
            how,
            from_us: course_us[0],
            to_us: course_us[course_us.len() - 1],
            course_us: course_us.to_vec(),
        };
        assert_eq!(
            drift(DriftOf::P50, DriftHow::Across, &[20_000.0, 60_000.0, 183_000.0]).to_string(),
            "p50 rises from 20.0 ms to 183 ms over the repeats ▁▄█"
        );
        assert_eq!(
            drift(DriftOf::SlowestPercent, DriftHow::Within, &[5_000.0, 5_000.0, 900.0]).to_string(),
            "the mean of the slowest 1 % falls from 5.00 ms to 0.900 ms within every repeat ██▁"
        );
        assert_eq!(
            drift(DriftOf::P50, DriftHow::After(1), &[13_000.0, 29_000.0, 29_000.0]).to_string(),
            "p50 is 13.0 ms up to repeat 1 and 29.0 ms from repeat 2 on ▁██"
        );
    }
}
