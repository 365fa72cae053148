//! Streamed replies: times of each, and figures of a point.

use super::{Interval, Percentile, Sample};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

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
    #[must_use]
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
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["first_byte", "ttft", "gap", "events", "bytes", "tokens"][self as usize]
    }

    /// Returns the figure of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// True for times, which objectives can limit.
    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self, Self::FirstByte | Self::Ttft | Self::Gap)
    }

    /// True for times that begin at the scheduled send, as the latency does.
    #[must_use]
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
