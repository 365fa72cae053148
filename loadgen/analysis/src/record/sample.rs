//! One request of a step, as its user saw it: three times, and how it ended.

use serde::{Deserialize, Serialize};
use std::fmt;
use tierlab_protocol::timing::StageTimings;

/// One request of the measured window. Times are microseconds on one monotonic clock whose zero is the step's start
/// (warm-up included), so a sample's latency is `done_us - due_us`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When the schedule wanted it sent.
    pub due_us: u64,
    /// When it was handed to the HTTP client; for one never sent, when the step gave up on it.
    pub sent_us: u64,
    /// When the last byte of the reply had come, or when it failed.
    pub done_us: u64,
    /// Outcome.
    pub outcome: Outcome,
    /// The server's own stages; absent where the reply carried none.
    pub timings: Option<StageTimings>,
}

impl Sample {
    /// Scheduled send to last byte, in microseconds.
    #[must_use]
    pub const fn latency_us(&self) -> u64 {
        self.done_us.saturating_sub(self.due_us)
    }

    /// Actual send to last byte, in microseconds.
    #[must_use]
    pub const fn service_us(&self) -> u64 {
        self.done_us.saturating_sub(self.sent_us)
    }

    /// Scheduled to actual send, in microseconds.
    #[must_use]
    pub const fn lag_us(&self) -> u64 {
        self.sent_us.saturating_sub(self.due_us)
    }

    /// True if it was answered well.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok)
    }
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Answered well.
    Ok,
    /// Not.
    Failed(Failure),
}

/// Why a request failed. Its text is the key of [`crate::record::Repeat::errors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Failure {
    /// Another status than 200.
    Status(u16),
    /// The client's own limit passed.
    Timeout,
    /// No connection.
    Connect,
    /// The connection broke under the request.
    Broken,
    /// A gRPC status other than OK, by its code.
    Rpc(u16),
    /// Status 200 (or OK) with what is no reply of the model: an error, another model's name, outputs missing, or of
    /// another type or shape.
    WrongReply,
    /// A reply of the model whose values are not those that were expected, on the sample of which they are known.
    WrongValue,
    /// A reply beyond the limit of what is read.
    TooLarge,
    /// Still out, or never sent, when the step's drain limit passed.
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
            Self::Timeout => f.write_str("timeout"),
            Self::Connect => f.write_str("connect"),
            Self::Broken => f.write_str("broken"),
            Self::WrongReply => f.write_str("wrong-reply"),
            Self::WrongValue => f.write_str("wrong-value"),
            Self::TooLarge => f.write_str("too-large"),
            Self::DrainLimit => f.write_str("drain-limit"),
        }
    }
}
