//! Arrival process: the distribution of gaps between requests, and the rate over the window. Plain data; [`crate::schedule`]
//! draws from it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierlab_analysis::record::RampRates;

/// Arrival process and its profile.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Arrivals {
    /// Distribution of gaps.
    pub process: Process,
    /// Rate over the window.
    pub shape: Shape,
}

/// Distribution of the gaps between requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Process {
    /// A Poisson process: exponential gaps.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
    /// Gamma-distributed gaps.
    Gamma {
        /// Standard deviation of a gap over its mean: 0 is constant, 1 is Poisson, more is bursts.
        cv: f64,
    },
    /// Recorded requests in their order.
    Trace {
        /// Recorded times.
        trace: Arc<Trace>,
        /// Replay speed: recorded seconds per second of the step. `None` scales the gaps to the load's mean rate.
        speed: Option<f64>,
    },
}

/// Arrival times of recorded requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Path as written in the plan.
    pub file: PathBuf,
    /// Seconds from the first request, ascending; at least two, and not all equal.
    pub at_s: Vec<f64>,
    /// Number of recorded requests to other servers, which are left out.
    pub other_servers: usize,
}

/// Rate over the window; the load's rate is its mean. The warm-up runs at the mean throughout.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Shape {
    /// Constant rate.
    #[default]
    Flat,
    /// Pieces of equal length, each at its share of the mean rate.
    Steps(Vec<f64>),
    /// Straight line between two shares of the mean rate, which average 1.
    Ramp {
        /// Share at the window's start.
        from: f64,
        /// Share at the window's end.
        to: f64,
    },
    /// Straight line between two rates, then the second one. The step stops once every user has been busy for a while.
    Climb(RampRates),
}

impl Arrivals {
    /// Rates of a ramp; `None` at a constant mean rate.
    pub const fn ramp(&self) -> Option<RampRates> {
        let Shape::Climb(rates) = self.shape else { return None };
        Some(rates)
    }

    /// True if recorded requests are sent at their own times.
    pub const fn is_replay(&self) -> bool {
        matches!(self.process, Process::Trace { speed: Some(_), .. })
    }

    /// Note about recorded requests that steps of this length leave out, if any.
    pub fn left_out(&self, step: Duration) -> Option<String> {
        let Process::Trace { trace, speed } = &self.process else {
            return None;
        };
        let end_s = speed.map_or(f64::INFINITY, |speed| speed * step.as_secs_f64());
        let late = trace.at_s.iter().filter(|at_s| **at_s >= end_s).count();
        let (file, elsewhere) = (trace.file.display(), trace.other_servers);
        let (left_out, all) = (late + elsewhere, trace.at_s.len() + elsewhere);
        let why = format!("{late} come after the step's end, {elsewhere} went to other servers than the first");
        (left_out > 0).then(|| format!("{file}: {left_out} of {all} requests left out: {why}"))
    }

    /// Creates equal gaps at a constant rate.
    pub const fn constant() -> Self {
        Self {
            process: Process::Constant,
            shape: Shape::Flat,
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Process::Poisson => f.write_str("poisson")?,
            Process::Constant => f.write_str("constant")?,
            Process::Gamma { cv } => write!(f, "gamma(cv {cv:.2})")?,
            Process::Trace { trace, speed } => {
                let name = trace.file.file_name().unwrap_or_default().to_string_lossy();
                match speed {
                    None => write!(f, "trace({name})")?,
                    Some(speed) => write!(f, "replay({name} ×{speed})")?,
                }
            }
        }
        match &self.shape {
            // A ramp is named by the point's driver.
            Shape::Flat | Shape::Climb(_) => Ok(()),
            Shape::Steps(pieces) => {
                let pieces: Vec<String> = pieces.iter().map(|piece| format!("{piece:.2}")).collect();
                write!(f, " in steps({})", pieces.join(" "))
            }
            Shape::Ramp { from, to } => write!(f, " on a ramp({from:.2} to {to:.2})"),
        }
    }
}
