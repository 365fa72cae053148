//! The Open Inference Protocol v2 on gRPC: messages, and what they have in common with the documents and tensors of HTTP.
//!
//! In: protobuf messages as Triton's and KServe's clients send them (package `inference`). Out: the same
//! [`InferRequest`](crate::infer::InferRequest) that HTTP bodies become, and messages made from the same documents.
//! The messages are declared here with prost's derives, so that no compiler for `.proto` files is needed; their field
//! numbers are those of KServe's `grpc_predict_v2.proto` and Triton's `grpc_service.proto` and `model_config.proto`.

pub mod client;
pub mod config;
mod documents;
pub mod health;
mod infer;
pub mod messages;
mod received;
pub mod status;
mod survey;

pub use received::ReceivedRequest;
pub use survey::MAX_PARAMETERS;

/// The full name of the service; a method's path is `/SERVICE/METHOD`.
pub const SERVICE: &str = "inference.GRPCInferenceService";
/// Response metadata with the stages of a request, in the form of the HTTP header of that name.
pub const SERVER_TIMING: &str = "server-timing";
