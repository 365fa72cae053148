//! The Open Inference Protocol v2 on gRPC: its messages, converted to and from the documents and tensors of HTTP.
//!
//! In: protobuf messages as Triton's and KServe's clients send them (package `inference`). Out: the same
//! [`InferRequest`](crate::infer::InferRequest) that HTTP bodies become, and messages made from the same documents. The
//! messages are generated from `protocol/proto` at each build. tonic's crates for health and statuses are not used:
//! they would add a runtime to this crate for a few small messages, and the server answers health calls from its own
//! state.

pub mod client;
mod documents;
mod infer;
mod received;

pub use received::{MAX_PARAMETERS, ReceivedRequest};

/// The messages of `grpc.health.v1.Health`, generated from `protocol/proto/health.proto`.
pub mod health {
    pub use health_check_response::ServingStatus;

    /// Full name of the service.
    pub const SERVICE: &str = "grpc.health.v1.Health";

    include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
}

/// The messages of `inference.GRPCInferenceService`, generated from `protocol/proto/inference.proto` and
/// `protocol/proto/model_config.proto`.
#[allow(
    missing_docs,
    reason = "most fields have the names of the documents over HTTP, which say what they hold"
)]
#[allow(
    clippy::enum_variant_names,
    reason = "Triton's names of data types all begin with TYPE"
)]
pub mod messages {
    use serde::Serializer;

    pub use infer_parameter::ParameterChoice;
    pub use log_value::ParameterChoice as LogChoice;
    use std::collections::HashMap;

    /// Parameters by name.
    pub type Parameters = HashMap<String, InferParameter>;

    /// Writes the name of a data type.
    fn type_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(DataType::try_from(*number).unwrap_or_default().as_str_name())
    }

    /// Writes the name of the device of an instance group.
    fn kind_name<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = model_instance_group::Kind::try_from(*number).unwrap_or_default();
        serializer.serialize_str(kind.as_str_name())
    }

    include!(concat!(env!("OUT_DIR"), "/inference.rs"));
}

/// Details of a refused call: `google.rpc.Status` with a `RetryInfo`, as gRPC clients read it.
///
/// In: a code, a message, and a retry delay. Out: the bytes of the `grpc-status-details-bin` trailer. The messages are
/// generated from `protocol/proto/status.proto`.
pub mod status {
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
}

/// Full name of the service; a method's path is `/SERVICE/METHOD`.
pub const SERVICE: &str = "inference.GRPCInferenceService";
/// Response metadata with the stages of a request, in the form of the HTTP header of that name.
pub const SERVER_TIMING: &str = "server-timing";
