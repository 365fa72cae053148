//! The messages of `grpc.health.v1.Health`, from gRPC's `health.proto`.

use prost::Message;

/// The full name of the service.
pub const SERVICE: &str = "grpc.health.v1.Health";

/// Names a service; empty for the whole server.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HealthCheckRequest {
    /// The service's full name.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// How a service fares.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Not said.
    Unknown = 0,
    /// It does.
    Serving = 1,
    /// It does not.
    NotServing = 2,
    /// There is no such service; said by `Watch` alone.
    ServiceUnknown = 3,
}
