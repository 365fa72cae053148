//! Outcome of a request, with its message for the result. In: a checked reply, or the reason for its absence.

use super::found::Wrong;
use super::received::TooLarge;
use tierlab_analysis::record::{Failure, Outcome};

use std::fmt::Display;
use tierlab_protocol::timing::StageTimings;

/// A request without a reply.
#[derive(Debug)]
pub struct NoReply {
    /// Kind of failure.
    pub failure: Failure,
    /// Details for the reader of the result.
    pub says: Option<String>,
}

impl From<Failure> for NoReply {
    fn from(failure: Failure) -> Self {
        Self { failure, says: None }
    }
}

impl From<TooLarge> for NoReply {
    fn from(what: TooLarge) -> Self {
        Self {
            failure: Failure::TooLarge,
            says: Some(what.to_string()),
        }
    }
}

/// Verdict on a reply or its absence.
#[derive(Debug)]
pub struct CheckedReply {
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Stages of the server.
    pub timings: Option<StageTimings>,
    /// Example for the result, if the kind of failure alone is not enough.
    pub says: Option<String>,
}

impl CheckedReply {
    /// Creates the outcome of a good reply.
    #[must_use]
    pub const fn ok(timings: Option<StageTimings>) -> Self {
        Self {
            outcome: Outcome::Ok,
            timings,
            says: None,
        }
    }

    /// Creates the outcome of a failed request.
    #[must_use]
    pub const fn failed(failure: Failure, timings: Option<StageTimings>) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            timings,
            says: None,
        }
    }

    /// Creates the outcome of a reply that is not the model's, or has wrong values.
    #[must_use]
    pub fn refused(wrong: &Wrong, timings: Option<StageTimings>) -> Self {
        Self {
            says: Some(wrong.to_string()),
            ..Self::failed(wrong.failure(), timings)
        }
    }

    /// Creates the outcome of an invalid reply.
    #[must_use]
    pub fn wrong(what: &impl Display, timings: Option<StageTimings>) -> Self {
        Self {
            says: Some(what.to_string()),
            ..Self::failed(Failure::WrongReply, timings)
        }
    }
}

impl From<NoReply> for CheckedReply {
    fn from(NoReply { failure, says }: NoReply) -> Self {
        Self {
            says,
            ..Self::failed(failure, None)
        }
    }
}
