//! The messages of `grpc.health.v1.Health`, generated from `protocol/proto/health.proto`.

pub use health_check_response::ServingStatus;

/// The full name of the service.
pub const SERVICE: &str = "grpc.health.v1.Health";

include!(concat!(env!("OUT_DIR"), "/grpc.health.v1.rs"));
