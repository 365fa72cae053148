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
pub mod messages;
mod prescan;
mod received;
pub mod status;

pub use prescan::MAX_PARAMETERS;
pub use received::ReceivedRequest;

/// The messages of `grpc.health.v1.Health`, generated from `protocol/proto/health.proto`.
pub mod health {
    pub use health_check_response::ServingStatus;

    /// Full name of the service.
    pub const SERVICE: &str = "grpc.health.v1.Health";

    include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
}

/// Full name of the service; a method's path is `/SERVICE/METHOD`.
pub const SERVICE: &str = "inference.GRPCInferenceService";
/// Response metadata with the stages of a request, in the form of the HTTP header of that name.
pub const SERVER_TIMING: &str = "server-timing";
