//! Reply of either protocol. In: a reply read to its last byte, or the reason for its absence. Out: its outcome. Knows
//! no clock.

use super::http;
use crate::grpc;
use crate::reply::{CHECKED_AT_ONCE_BYTES, CheckedReply, Expected, NoReply};
use std::sync::Arc;

/// Complete reply, not checked yet.
pub(crate) enum Reply {
    Http(http::HttpReply),
    Grpc(grpc::GrpcReply),
}

impl Reply {
    /// Checks that it is a reply of the model.
    pub(crate) fn judge(&self, expected: &Expected) -> CheckedReply {
        match self {
            Self::Http(reply) => reply.judge(expected),
            Self::Grpc(reply) => reply.judge(expected),
        }
    }

    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Http(reply) => reply.len(),
            Self::Grpc(reply) => reply.len(),
        }
    }
}

/// Returns the result of a request. Large replies are checked on another thread, because other requests wait for this
/// one.
pub(crate) async fn judge(reply: Result<Reply, NoReply>, expected: &Arc<Expected>) -> CheckedReply {
    match reply {
        Err(missing) => missing.into(),
        Ok(reply) if reply.len() <= CHECKED_AT_ONCE_BYTES => reply.judge(expected),
        Ok(reply) => {
            let expected = Arc::clone(expected);
            let checking = tokio::task::spawn_blocking(move || reply.judge(&expected));
            checking.await.unwrap_or_else(|error| CheckedReply::wrong(&error, None))
        }
    }
}
