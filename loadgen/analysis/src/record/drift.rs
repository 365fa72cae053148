//! A latency that did not stay what it was, as a summary keeps it. Plain data; `crate::validity::stationarity` finds it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Figure that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftOf {
    /// The median.
    P50,
    /// The mean of the slowest 1 %, those from the p99 on.
    SlowestPercent,
}

/// Form of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriftHow {
    /// From the beginning to the end of every repeat.
    Within,
    /// From the first repeat to the last.
    Across,
    /// At once, after so many repeats in the order in which they were made.
    After(u32),
}

/// A latency that moved by more than chance and more than matters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Figure.
    pub of: DriftOf,
    /// Form.
    pub how: DriftHow,
    /// Value at the start, in microseconds.
    pub from_us: f64,
    /// Value at the end, in microseconds.
    pub to_us: f64,
    /// On the way, in microseconds: repeat by repeat, or piece by piece of the window as a mean over the repeats.
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
            DriftHow::After(count) => write!(
                f,
                "{of} is {from} up to repeat {count} and {to} from repeat {} on",
                count + 1
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

/// Eight heights on the scale of the logarithm, from the least value to the largest.
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
