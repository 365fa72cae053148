//! Requests of a step: their number, sizes and shapes as sent, each of them as its user saw it, and the times of streamed replies.

use super::{Interval, Percentile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tierlab_protocol::timing::StageTimings;

/// Requests of a step, prepared before its clock started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentRequests {
    /// Number of different requests; they are repeated in turn if the step sends more.
    pub distinct: u64,
    /// Order of sending: `sequential`, `shuffled`, `zipf(1.10)`.
    pub order: String,
    /// Bytes of a request's body.
    pub bytes: Spread,
    /// Inferences counted for one request, used for $/10k inferences and inferences per second.
    pub inferences_per_request: f64,
    /// Mean rows of a request, which the server counts as inferences; absent if unknown, and in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_rows: Option<f64>,
    /// Dimension that counts as rows, and its source, in words.
    pub rows_by: String,
    /// Inputs of the requests.
    pub inputs: Vec<SentInput>,
    /// Check of the replies' values; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<ValueCheck>,
}

/// One input of a step's requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentInput {
    /// Name of the input.
    pub name: String,
    /// Data type of the input.
    pub datatype: String,
    /// Description of its elements.
    pub values: String,
    /// Shapes, the most frequent first, at most 16 of them.
    pub shapes: Vec<ShapeShare>,
    /// Number of different shapes.
    pub distinct_shapes: u64,
    /// Elements of the input per request.
    pub elements: Spread,
}

/// Shape, with its share of the different requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeShare {
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Share of the different requests, from 0 to 1.
    pub share: f64,
}

/// Smallest, median and largest value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Smallest value.
    pub min: u64,
    /// Median; the lower of two middle values.
    pub median: u64,
    /// Largest value.
    pub max: u64,
}

/// Check of the replies' values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValueCheck {
    /// Share of the replies that were compared, from 0 to 1; the first reply of a step always is.
    pub share: f64,
    /// Tolerance of a value: the maximum deviation is `tolerance × (1 + |expected|)`.
    pub tolerance: f64,
    /// Number of different requests with known replies.
    pub requests: u64,
}

impl Spread {
    /// Returns the statistics of values; all 0 if empty.
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        Self {
            min: at(0),
            median: at(values.len().saturating_sub(1) / 2),
            max: at(values.len().saturating_sub(1)),
        }
    }
}

/// One request of the measured window. Times are microseconds on one monotonic clock whose zero is the step's start
/// (warm-up included), so a sample's latency is `done_us - due_us`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Scheduled send time.
    pub due_us: u64,
    /// Time of the hand-over to the HTTP client; for an unsent request, the time at which the step gave up on it.
    pub sent_us: u64,
    /// Time of the last byte of the reply, or of the failure.
    pub done_us: u64,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Stages of the server; absent if the reply carried none.
    pub timings: Option<StageTimings>,
}

impl Sample {
    /// Scheduled send to last byte, in microseconds.
    pub const fn latency_us(&self) -> u64 {
        self.done_us.saturating_sub(self.due_us)
    }

    /// Actual send to last byte, in microseconds.
    pub const fn service_us(&self) -> u64 {
        self.done_us.saturating_sub(self.sent_us)
    }

    /// Scheduled to actual send, in microseconds.
    pub const fn lag_us(&self) -> u64 {
        self.sent_us.saturating_sub(self.due_us)
    }

    /// True for a good reply.
    pub const fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok)
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Good reply.
    Ok,
    /// Failed request, with its reason.
    Failed(Failure),
}

/// Reason for a failed request. Its text is the key of [`crate::record::Repeat::errors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Failure {
    /// Status other than 200.
    Status(u16),
    /// Timeout of the client.
    Timeout,
    /// Failed connection attempt.
    Connect,
    /// Connection that broke during the request.
    Broken,
    /// A gRPC status other than OK, by its code.
    Rpc(u16),
    /// Status 200 (or OK) without a reply of the model: an error, another model's name, or outputs that are missing or
    /// of another type or shape.
    WrongReply,
    /// Reply of the model with unexpected values, for requests whose values are known.
    WrongValue,
    /// Reply above the size limit.
    TooLarge,
    /// Request in flight or unsent at the step's drain limit.
    DrainLimit,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "{code}"),
            Self::Rpc(code) => match tierlab_protocol::grpc::client::code_name(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "grpc-status {code}"),
            },
            other => f.write_str(other.into()),
        }
    }
}

/// Good streamed reply, with times on its sample's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamSample {
    /// Request of the reply.
    pub sample: Sample,
    /// Times and counts of the reply.
    pub reply: StreamedReply,
}

/// Times and counts of one streamed reply, in microseconds on the step's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamedReply {
    /// Arrival of the first byte of the reply, its head included.
    pub first_byte_us: u64,
    /// Arrival of the last byte of the first event.
    pub first_event_us: u64,
    /// Times between the arrivals of consecutive events; one fewer than events.
    pub gaps_us: Vec<u32>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Tokens counted by the server.
    pub tokens: Option<u64>,
}

impl StreamedReply {
    /// Mean time between events; `None` with a single event.
    pub fn mean_gap_us(&self) -> Option<f64> {
        let sum: u64 = self.gaps_us.iter().copied().map(u64::from).sum();
        (!self.gaps_us.is_empty()).then(|| sum as f64 / self.gaps_us.len() as f64)
    }
}

/// Figure of streamed replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamFigure {
    /// Scheduled send to first byte, in microseconds.
    FirstByte,
    /// Scheduled send to first event, in microseconds.
    Ttft,
    /// Time between two events, in microseconds; one value for each pair.
    Gap,
    /// Events of a request.
    Events,
    /// Bytes of a request's body.
    Bytes,
    /// Tokens of a request, as counted by the server.
    Tokens,
}

impl StreamFigure {
    /// Every figure.
    pub const ALL: [Self; 6] = [
        Self::FirstByte,
        Self::Ttft,
        Self::Gap,
        Self::Events,
        Self::Bytes,
        Self::Tokens,
    ];

    /// Name in plans, results and histograms.
    pub const fn name(self) -> &'static str {
        ["first_byte", "ttft", "gap", "events", "bytes", "tokens"][self as usize]
    }

    /// Returns the figure of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// True for times, which objectives can limit.
    pub const fn is_time(self) -> bool {
        matches!(self, Self::FirstByte | Self::Ttft | Self::Gap)
    }

    /// True for times that begin at the scheduled send, as the latency does.
    pub const fn is_since_due(self) -> bool {
        matches!(self, Self::FirstByte | Self::Ttft)
    }

    /// Appends the values of a request.
    pub fn values(self, StreamSample { sample, reply }: &StreamSample, values: &mut Vec<u64>) {
        match self {
            Self::FirstByte => values.push(reply.first_byte_us.saturating_sub(sample.due_us)),
            Self::Ttft => values.push(reply.first_event_us.saturating_sub(sample.due_us)),
            Self::Gap => values.extend(reply.gaps_us.iter().copied().map(u64::from)),
            Self::Events => values.push(reply.gaps_us.len() as u64 + 1),
            Self::Bytes => values.push(reply.bytes),
            Self::Tokens => values.extend(reply.tokens),
        }
    }
}

impl fmt::Display for StreamFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Distribution of one figure over a point's repeats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Mean over all values.
    pub mean: f64,
    /// Percentiles with at least 10 requests beyond them; a rough one has no upper bound.
    pub percentiles: BTreeMap<Percentile, Interval>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_values() {
        let of = |values: &[u64]| {
            let spread = Spread::of(values.to_vec());
            (spread.min, spread.median, spread.max)
        };
        assert_eq!(of(&[]), (0, 0, 0));
        assert_eq!(of(&[7]), (7, 7, 7));
        assert_eq!(of(&[9, 1, 4, 5]), (1, 4, 9));
    }
}
