//! Points other than single requests of an open loop: their driver, and figures beside their latencies.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Driver of a point that is not an open loop of single requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Driven {
    /// Closed loop: a number of users, each of which sends again after its reply and think time. Latency runs from the
    /// actual send, and throughput is a result: a stalled server also stops the arrivals, so that requests during the
    /// stall are missing (coordinated omission).
    ClosedLoop {
        /// Number of users, and maximum requests in flight.
        users: u32,
        /// Pause between a reply and the next request, in words.
        think_time: String,
    },
    /// Open loop at the throughput of this closed loop, measured right after it.
    BesideClosedLoop {
        /// Users of the closed loop.
        users: u32,
        /// Think time of the closed loop, in words.
        think_time: String,
    },
    /// Journey of several requests, with open-loop arrivals.
    Journey {
        /// Name of the journey.
        name: String,
        /// Step of the point; absent for the whole journey.
        step: Option<String>,
    },
}

impl Driven {
    /// True if the point's rate is a result and not the offered rate.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::ClosedLoop { .. })
    }
}

impl fmt::Display for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClosedLoop { users, think_time } => write!(f, "closed loop of {users}, think time {think_time}"),
            Self::BesideClosedLoop { users, think_time } => {
                write!(f, "beside a closed loop of {users}, think time {think_time}")
            }
            Self::Journey { name, step: None } => write!(f, "journey {name}"),
            Self::Journey { name, step: Some(step) } => write!(f, "journey {name}, step {step}"),
        }
    }
}

/// Terms of the interactive response time law over a closed loop's window: `users = rate × (response + pause)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClosedLoopFigures {
    /// Requests that ended in the window per second, failed requests included.
    pub ended_rps: f64,
    /// Mean time from actual send to last byte, in microseconds.
    pub mean_response_us: f64,
    /// Mean time from a user's last byte to its next send, in microseconds: think time, and the load generator's own
    /// work.
    pub mean_pause_us: f64,
    /// Mean think time set by the plan, in microseconds.
    pub mean_think_us: f64,
}

impl ClosedLoopFigures {
    /// Returns the users by the law; equal to the plan's except for cycles cut by the window's edges.
    #[must_use]
    pub fn users_by_law(&self) -> f64 {
        self.ended_rps * (self.mean_response_us + self.mean_pause_us) / 1e6
    }

    /// Returns the mean pause beyond the think time, in microseconds: timers and the load generator's own work.
    #[must_use]
    pub fn own_us(&self) -> f64 {
        (self.mean_pause_us - self.mean_think_us).max(0.0)
    }
}

/// Number of journeys of a step, from its first to its last, warm-up included, as in the server's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JourneyFigures {
    /// Completed journeys.
    pub completed: u64,
    /// Requests of all journeys, failed ones included.
    pub requests: u64,
}

/// Times of goose's own clock for the same requests of the window: from its call to the reply's headers, without the
/// body. For a journey the sum over its requests, without the time before and between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GooseFigures {
    /// Requests counted by goose's own metrics, warm-up included, since goose had started all users; absent if its
    /// metrics were off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Median of these times, in microseconds.
    pub p50_us: f64,
    /// 95th percentile of these times, in microseconds.
    pub p95_us: f64,
    /// 99th percentile of these times, in microseconds.
    pub p99_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_gives_back_the_users() {
        // Two users, 8 ms per request and 2 ms of pause: 200 per second.
        let figures = ClosedLoopFigures {
            ended_rps: 200.0,
            mean_response_us: 8_000.0,
            mean_pause_us: 2_000.0,
            mean_think_us: 1_900.0,
        };
        assert!((figures.users_by_law() - 2.0).abs() < 1e-9);
        assert!((figures.own_us() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn what_drove_a_point_is_told_in_json_and_words() {
        let closed = Driven::ClosedLoop {
            users: 4,
            think_time: "0 ms".into(),
        };
        let text = serde_json::to_string(&closed).unwrap();
        assert_eq!(text, r#"{"kind":"closed-loop","users":4,"think_time":"0 ms"}"#);
        assert_eq!(serde_json::from_str::<Driven>(&text).unwrap(), closed);
        let step = Driven::Journey {
            name: "recommend".into(),
            step: Some("rank".into()),
        };
        assert_eq!(step.to_string(), "journey recommend, step rank");
    }
}
