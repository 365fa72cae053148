//! One request of a step, as its user saw it: three times and an outcome.

use serde::{Deserialize, Serialize};
use std::fmt;
use tierlab_protocol::timing::StageTimings;

/// One request of the measured window. Times are microseconds on one monotonic clock whose zero is the step's start
/// (warm-up included), so a sample's latency is `done_us - due_us`.
#[derive(Debug, Clone, Copy, PartialEq)]
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

    /// True for a good reply.
    #[must_use]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
