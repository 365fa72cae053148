//! Drivers of a step, and the figures that only one of them has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Driver of a point that is not an open loop of single requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Open loop at a rate that changes over the window, with figures of each block of it.
    Ramp(RampRates),
}

/// Rates of a ramp: a straight line between two rates, then the second one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampRates {
    /// Requests per second at the window's start.
    pub from: f64,
    /// Requests per second at the line's end, and after it.
    pub to: f64,
    /// Share of the window that the line takes.
    pub over: f64,
}

/// Number of blocks of a ramp's window.
pub const RAMP_BLOCKS: usize = 10;

impl RampRates {
    /// Rate after a share of the window.
    pub fn rate(&self, share: f64) -> f64 {
        self.from + (self.to - self.from) * (share / self.over).min(1.0)
    }

    /// Mean rate over the window.
    pub fn mean(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.over + self.to * (1.0 - self.over)
    }

    /// Share of the window before a stop at `stopped_rps`. `passed` is the share of the window's requests before the
    /// stop; it decides if the stop is in the constant part.
    pub fn share_until(&self, stopped_rps: f64, passed: f64) -> f64 {
        let Self { from, to, over } = *self;
        match stopped_rps == to {
            true => self.share_of_time(passed).clamp(over, 1.0),
            false => over * (stopped_rps - from) / (to - from),
        }
    }

    /// Share of the window after which the share `passed` of its requests is due.
    pub fn share_of_time(&self, passed: f64) -> f64 {
        let Self { from, to, over } = *self;
        let requests = passed * self.mean();
        let of_line = f64::midpoint(from, to) * over;
        if requests > of_line {
            return over + (requests - of_line) / to;
        }
        // The line's integral is `from t + (to - from) t² / (2 over)`, solved for t without losing digits if both are equal.
        let root = (from * from + 2.0 * (to - from) * requests / over).max(0.0).sqrt();
        match from + root > 0.0 {
            true => 2.0 * requests / (from + root),
            false => 0.0,
        }
    }
}

impl Driven {
    /// True if the point's rate is a result and not the offered rate.
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
            Self::Ramp(RampRates { from, to, .. }) => write!(f, "ramp from {from} to {to}/s"),
        }
    }
}

/// Figures that only one kind of driver has, under their own keys of the repeat.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DriverFigures {
    /// Closed loop of users.
    ClosedLoop {
        /// Terms of the interactive response time law, for a closed loop.
        closed_loop: ClosedLoopFigures,
        /// Times of goose's own clock, for closed loops and journeys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goose: Option<GooseFigures>,
    },
    /// Whole journeys.
    Journeys {
        /// Number of whole journeys; absent for their steps.
        journeys: JourneyFigures,
        /// Times of goose's own clock, for closed loops and journeys.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        goose: Option<GooseFigures>,
    },
    /// Part of a mix that was measured together with the other parts.
    MixPart {
        /// Share of this part of a mix; absent if the step had no other parts.
        mix_share: MixShare,
    },
    /// Open loop on a ramp.
    Ramp {
        /// Replies by block, and the end of the ramp.
        ramp: RampFigures,
    },
    /// Open loop of single requests, or one step of a journey.
    OpenLoop {},
}

impl Default for DriverFigures {
    fn default() -> Self {
        Self::OpenLoop {}
    }
}

impl DriverFigures {
    /// Share of a part of a mix.
    pub const fn mix_share(&self) -> Option<MixShare> {
        let Self::MixPart { mix_share } = self else { return None };
        Some(*mix_share)
    }

    /// Terms of the interactive response time law, for a closed loop.
    pub const fn closed_loop(&self) -> Option<ClosedLoopFigures> {
        let Self::ClosedLoop { closed_loop, .. } = self else {
            return None;
        };
        Some(*closed_loop)
    }

    /// Figures of a ramp.
    pub const fn ramp(&self) -> Option<RampFigures> {
        let Self::Ramp { ramp } = self else { return None };
        Some(*ramp)
    }

    /// Number of whole journeys.
    pub const fn journeys(&self) -> Option<JourneyFigures> {
        let Self::Journeys { journeys, .. } = self else {
            return None;
        };
        Some(*journeys)
    }

    /// Times of goose's own clock, for closed loops and journeys.
    pub const fn goose(&self) -> Option<GooseFigures> {
        match self {
            Self::ClosedLoop { goose, .. } | Self::Journeys { goose, .. } => *goose,
            _ => None,
        }
    }
}

/// Figures of a ramp.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampFigures {
    /// Good replies by the block in which they completed.
    pub answered: [u64; RAMP_BLOCKS],
    /// Rate at which the step stopped because every user had been busy for a second; absent if it reached its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_rps: Option<f64>,
}

/// Terms of the interactive response time law over a closed loop's window: `users = rate × (response + pause)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    pub fn users_by_law(&self) -> f64 {
        self.ended_rps * (self.mean_response_us + self.mean_pause_us) / 1e6
    }

    /// Returns the mean pause beyond the think time, in microseconds: timers and the load generator's own work.
    pub fn own_us(&self) -> f64 {
        (self.mean_pause_us - self.mean_think_us).max(0.0)
    }
}

/// Number of journeys of a step, from its first to its last, warm-up included, as in the server's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JourneyFigures {
    /// Completed journeys.
    pub completed: u64,
    /// Requests of all journeys, failed ones included.
    pub requests: u64,
}

/// Times of goose's own clock for the same requests of the window: from its call to the reply's headers, without the
/// body. For a journey, the sum over its requests, without the time before and between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// Shares of one part; those of all parts sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixShare {
    /// Share of the inferences.
    pub inferences: f64,
    /// Share of hourly costs: the instance, the cache's memory in it, the tier's capacity.
    pub hour: f64,
    /// Share of costs by use: the tier's requests and bytes.
    pub tier: f64,
    /// Figure that divides the hour.
    pub hour_by: HourBy,
}

/// Figure that divides the hour of a mix, ordered so that the greater of two applies to both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HourBy {
    /// Time of requests in sessions, as their replies report it.
    InferenceTime,
    /// Number of inferences, if replies do not report times.
    Inferences,
}

/// Agent of a step, with the error of its clock and its lateness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentStart {
    /// Name and address of the agent.
    pub agent: String,
    /// Lead of its clock over the run's in microseconds, already corrected.
    pub offset_us: f64,
    /// Uncertainty of that lead in microseconds: half of the shortest of several round trips.
    pub uncertainty_us: f64,
    /// Delay of its start in microseconds, as reported by the agent.
    pub late_us: f64,
    /// Requests of its share, warm-up included.
    pub requests: u64,
}

impl AgentStart {
    /// Returns the maximum distance between the common start and its own, in microseconds.
    pub fn skew_us(&self) -> f64 {
        self.uncertainty_us + self.late_us
    }
}

/// Returns the agent that may have started furthest from the common start.
pub fn worst_start(agents: &[AgentStart]) -> Option<&AgentStart> {
    agents.iter().max_by(|a, b| a.skew_us().total_cmp(&b.skew_us()))
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
