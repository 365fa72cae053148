//! Why a request gets no answer: a reason that metrics count and HTTP turns into a status, and a sentence for the client.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tierlab_protocol::infer::BadRequest;
use tierlab_storage::{ErrorKind, StorageError, deadline};

/// Kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// The request itself is wrong.
    BadRequest,
    /// No such model or version.
    UnknownModel,
    /// No such row in the feature table.
    UnknownEntity,
    /// The model is still loading, or was refused when it was loaded.
    NotReady,
    /// The body is larger than the limit.
    TooLarge,
    /// The body did not arrive in time.
    SlowBody,
    /// The limit of requests in flight is reached.
    Full,
    /// The request's time had passed before it was answered.
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

impl Reason {
    /// Every reason.
    pub(crate) const ALL: [Self; 16] = [
        Self::BadRequest,
        Self::UnknownModel,
        Self::UnknownEntity,
        Self::NotReady,
        Self::TooLarge,
        Self::SlowBody,
        Self::Full,
        Self::Deadline,
        Self::Cancelled,
        Self::Draining,
        Self::Tier,
        Self::Corrupt,
        Self::Inference,
        Self::ReplyTooLarge,
        Self::Forbidden,
        Self::Unloadable,
    ];

    /// The name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::UnknownModel => "unknown_model",
            Self::UnknownEntity => "unknown_entity",
            Self::NotReady => "not_ready",
            Self::TooLarge => "too_large",
            Self::SlowBody => "slow_body",
            Self::Full => "full",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
            Self::Draining => "draining",
            Self::Tier => "tier",
            Self::Corrupt => "corrupt",
            Self::Inference => "inference",
            Self::ReplyTooLarge => "reply_too_large",
            Self::Forbidden => "forbidden",
            Self::Unloadable => "unloadable",
        }
    }

    /// The HTTP status.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::Unloadable => 422,
            Self::UnknownModel | Self::UnknownEntity => 404,
            Self::SlowBody => 408,
            Self::TooLarge => 413,
            // No client reads it; the number is the one that servers log for this.
            Self::Cancelled => 499,
            Self::Inference | Self::ReplyTooLarge => 500,
            Self::NotReady | Self::Full | Self::Draining | Self::Tier | Self::Corrupt => 503,
            Self::Deadline => 504,
        }
    }

    /// Seconds after which the same request may be tried again; none where that would not help.
    pub(crate) const fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::NotReady | Self::Full | Self::Draining | Self::Tier => Some(1),
            _ => None,
        }
    }
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// A read of the tier `kind` that failed. A read that was given up because the request's time was over counts for the
    /// deadline and not for the tier. The client is told which tier, which object and what kind of failure; what the tier
    /// said, and its address, are for the operator.
    pub(crate) fn tier(kind: &str, error: &StorageError) -> Self {
        let reason = match error.kind() {
            ErrorKind::Timeout if deadline::remaining(Duration::MAX).is_zero() => Reason::Deadline,
            ErrorKind::Corrupt | ErrorKind::Changed | ErrorKind::OutOfRange | ErrorKind::Invalid => Reason::Corrupt,
            _ => Reason::Tier,
        };
        if reason != Reason::Deadline {
            log_failure(kind, error);
        }
        Self::new(reason, format!("tier `{kind}`: {}", error.for_clients()))
    }
}

/// Failures that the log has told of.
struct Logged {
    /// When the second began that they are counted in.
    since: Option<Instant>,
    count: u32,
}

/// Puts a tier's failure into the log, a few a second: under load every request may meet the same one.
fn log_failure(kind: &str, error: &StorageError) {
    static LOGGED: Mutex<Logged> = Mutex::new(Logged { since: None, count: 0 });
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if logged
        .since
        .is_none_or(|since| since.elapsed() >= Duration::from_secs(1))
    {
        *logged = Logged {
            since: Some(Instant::now()),
            count: 0,
        };
    }
    logged.count += 1;
    if logged.count <= LOGGED_PER_SECOND {
        tracing::warn!(tier = kind, %error, "a read failed");
    }
}

/// Failures of tiers that the log tells of in a second; the metrics count them all.
const LOGGED_PER_SECOND: u32 = 5;

impl From<BadRequest> for Refusal {
    fn from(error: BadRequest) -> Self {
        Self::bad(error.0)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
