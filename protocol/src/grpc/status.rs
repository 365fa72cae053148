//! Details of a refused call: `google.rpc.Status` with a `RetryInfo`, as gRPC clients read it.
//!
//! In: a code, a message, and a retry delay. Out: the bytes of the `grpc-status-details-bin` trailer. The messages are
//! generated from `protocol/proto/status.proto`.

use bytes::Bytes;
use prost::Message;
use prost_types::{Any, Duration};

/// Type URL of a [`RetryInfo`] inside a status.
pub const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Returns the details of a refusal that may be retried after `seconds`.
pub fn retry_details(code: i32, message: &str, seconds: u32) -> Bytes {
    let retry = RetryInfo {
        retry_delay: Some(Duration {
            seconds: i64::from(seconds),
            nanos: 0,
        }),
    };
    let status = RpcStatus {
        code,
        message: message.to_owned(),
        details: vec![Any {
            type_url: RETRY_INFO.to_owned(),
            value: retry.encode_to_vec(),
        }],
    };
    status.encode_to_vec().into()
}

include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
