//! What goes with a refused call: `google.rpc.Status` with a `RetryInfo`, as gRPC clients read it.
//!
//! In: a code, a message, and when to try again. Out: the bytes of the `grpc-status-details-bin` trailer. Sources:
//! `google/rpc/status.proto`, `google/rpc/error_details.proto`.

use bytes::Bytes;
use prost::Message;

/// The type of a [`RetryInfo`] inside a status.
pub const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RpcStatus {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The same message as the call's.
    #[prost(string, tag = "2")]
    pub message: String,
    /// More, by type.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Detail {
    /// The message's type.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RetryInfo {
    /// How long to wait before the next attempt.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<Seconds>,
}

/// `google.protobuf.Duration`, whole seconds of it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Seconds {
    /// How many.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// The details of a refusal that may be tried again after `seconds`.
#[must_use]
pub fn retry_details(code: i32, message: &str, seconds: u32) -> Bytes {
    let retry = RetryInfo {
        retry_delay: Some(Seconds {
            seconds: i64::from(seconds),
        }),
    };
    let status = RpcStatus {
        code,
        message: message.to_owned(),
        details: vec![Detail {
            type_url: RETRY_INFO.to_owned(),
            value: retry.encode_to_vec().into(),
        }],
    };
    status.encode_to_vec().into()
}
