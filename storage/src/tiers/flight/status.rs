//! Conversion of tier errors to gRPC statuses, and back. In: either. Out: the other.

use crate::error::with_causes;
use crate::{ErrorKind, StorageError};
use arrow_flight::error::FlightError;
use tonic::{Code, Status};

/// Converts an error of the origin for a client.
pub fn to_status(error: &StorageError) -> Status {
    refusal(error.kind(), format!("{}: {}", error.object(), error.detail()))
}

/// Creates an error of the origin for a client.
pub fn refusal(kind: ErrorKind, message: impl Into<String>) -> Status {
    let code = match kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Changed => Code::FailedPrecondition,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Invalid | ErrorKind::OutOfRange => Code::InvalidArgument,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unsupported => Code::Unimplemented,
    };
    Status::new(code, message)
}

/// Converts a gRPC status to an error about `object`.
pub(super) fn from_status(object: &str, status: &Status) -> StorageError {
    let kind = match status.code() {
        Code::NotFound => ErrorKind::NotFound,
        Code::FailedPrecondition => ErrorKind::Changed,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Denied,
        // The library reports a message above its own limit as OutOfRange.
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Invalid,
        Code::DataLoss => ErrorKind::Corrupt,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::Unimplemented => ErrorKind::Unsupported,
        // Connections that break inside a reply yield Unknown, Internal or Cancelled.
        _ => ErrorKind::Unavailable,
    };
    let mut detail = status.message().to_owned();
    if detail.is_empty() {
        detail = format!("{:?}", status.code());
    }
    let mut detail = with_causes(detail, status);
    if status.code() == Code::OutOfRange {
        detail.push_str("; raise `max_message_bytes`, or configure the server to send smaller batches");
    }
    kind.error(object, detail)
}

/// Converts a decoder's error to an error about `object`.
pub(super) fn from_flight(object: &str, error: &FlightError) -> StorageError {
    match error {
        FlightError::Tonic(status) => from_status(object, status),
        FlightError::ExternalError(source) => match source.downcast_ref::<StorageError>() {
            Some(error) => error.clone(),
            None => ErrorKind::Unavailable.error(object, source.to_string()),
        },
        other => ErrorKind::Corrupt.error(object, format!("reply is not Arrow: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KINDS;

    #[test]
    fn kinds_survive_the_way() {
        for (kind, ..) in KINDS {
            if kind == ErrorKind::OutOfRange {
                // The library's own code for a message above the limit.
                continue;
            }
            let status = to_status(&kind.error("a/b", "what happened"));
            let error = from_status("grpc://h/a/b", &status);
            assert_eq!((error.kind(), error.object()), (kind, "grpc://h/a/b"));
            assert!(error.detail().contains("what happened"));
        }
    }

    #[test]
    fn other_servers_codes_are_read() {
        for (code, kind) in [
            (Code::Unavailable, ErrorKind::Unavailable),
            (Code::Internal, ErrorKind::Unavailable),
            (Code::Unknown, ErrorKind::Unavailable),
            (Code::Unauthenticated, ErrorKind::Denied),
            (Code::OutOfRange, ErrorKind::Invalid),
            (Code::Unimplemented, ErrorKind::Unsupported),
        ] {
            assert_eq!(from_status("x", &Status::new(code, "m")).kind(), kind);
        }
    }
}
