//! Refusal of a request: a reason that metrics count and HTTP turns into a status, and a message for the client.

use crate::log_budget::LogBudget;
use std::time::Duration;
use tierlab_protocol::infer::BadRequest;
use tierlab_storage::{ErrorKind, StorageError, deadline};
use tonic::Code::{self, ResourceExhausted};

/// Kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Invalid request.
    BadRequest,
    /// Unknown model or version.
    UnknownModel,
    /// Unknown row of the feature table.
    UnknownEntity,
    /// The model is still loading, or was refused when it was loaded.
    NotReady,
    /// The body is larger than the limit.
    TooLarge,
    /// The body did not arrive in time.
    SlowBody,
    /// The limit of requests in flight is reached.
    Full,
    /// The request's time ended before it was answered.
    Deadline,
    /// The client went away.
    Cancelled,
    /// The server is shutting down.
    Draining,
    /// The tier failed, after its retries.
    Tier,
    /// A row or object is damaged.
    Corrupt,
    /// The model's run failed.
    Inference,
    /// The reply would take more memory than all requests may hold.
    ReplyTooLarge,
    /// The call is not allowed: management by request is off.
    Forbidden,
    /// The model's files on the tier cannot be served.
    Unloadable,
}

/// All reasons, in the order of the enum: name in metrics, HTTP status, gRPC code, and true if the same request may be
/// retried.
const REASONS: [(Reason, &str, u16, Code, bool); 16] = [
    (Reason::BadRequest, "bad_request", 400, Code::InvalidArgument, false),
    (Reason::UnknownModel, "unknown_model", 404, Code::NotFound, false),
    (Reason::UnknownEntity, "unknown_entity", 404, Code::NotFound, false),
    (Reason::NotReady, "not_ready", 503, Code::Unavailable, true),
    (Reason::TooLarge, "too_large", 413, ResourceExhausted, false),
    (Reason::SlowBody, "slow_body", 408, Code::DeadlineExceeded, false),
    (Reason::Full, "full", 503, ResourceExhausted, true),
    (Reason::Deadline, "deadline", 504, Code::DeadlineExceeded, false),
    // No client reads it; servers log this number for it.
    (Reason::Cancelled, "cancelled", 499, Code::Cancelled, false),
    (Reason::Draining, "draining", 503, Code::Unavailable, true),
    (Reason::Tier, "tier", 503, Code::Unavailable, true),
    (Reason::Corrupt, "corrupt", 503, Code::DataLoss, false),
    (Reason::Inference, "inference", 500, Code::Internal, false),
    (Reason::ReplyTooLarge, "reply_too_large", 500, ResourceExhausted, false),
    (Reason::Forbidden, "forbidden", 403, Code::PermissionDenied, false),
    (Reason::Unloadable, "unloadable", 422, Code::FailedPrecondition, false),
];

impl Reason {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        REASONS.into_iter().map(|(reason, ..)| reason)
    }

    /// Name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        REASONS[self as usize].1
    }

    pub(crate) const fn status(self) -> u16 {
        REASONS[self as usize].2
    }

    pub(crate) const fn code(self) -> Code {
        REASONS[self as usize].3
    }

    /// Seconds after which the same request may be retried; `None` if that would not help.
    pub(crate) const fn retry_after_s(self) -> Option<u32> {
        if REASONS[self as usize].4 { Some(1) } else { None }
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// Refusal for a failed read of the tier `kind`. A read given up because the request's time ended counts for the
    /// deadline and not for the tier. The client is told the tier, the object and the kind of failure; the tier's
    /// message and address are only for the operator.
    pub(crate) fn tier(kind: &str, error: &StorageError) -> Self {
        let reason = match error.kind() {
            ErrorKind::Timeout if deadline::remaining(Duration::MAX).is_zero() => Reason::Deadline,
            ErrorKind::Corrupt | ErrorKind::Changed | ErrorKind::OutOfRange | ErrorKind::Invalid => Reason::Corrupt,
            _ => Reason::Tier,
        };
        if reason != Reason::Deadline && LOGGED.spend().is_some() {
            tracing::warn!(tier = kind, %error, "read failed");
        }
        Self::new(reason, format!("tier `{kind}`: {}", error.for_clients()))
    }
}

/// Limit of logged tier failures per second: under load every request may meet the same one, and the metrics count them
/// all.
static LOGGED: LogBudget = LogBudget::new(5, Duration::from_secs(1));

impl From<BadRequest> for Refusal {
    fn from(error: BadRequest) -> Self {
        Self::bad(error.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_in_the_order_of_the_enum() {
        for (at, reason) in Reason::all().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }
}
