//! The gRPC front: `inference.GRPCInferenceService` as Triton and KServe speak it, and gRPC's health service.
//!
//! In: gRPC calls, routed by their paths. Out: messages, or a status with advice for the client. Infer calls use the
//! same pipeline as HTTP; nothing here knows how a request is answered.

mod calls;
mod documents;
mod frames;
mod incoming_messages;
mod infer;
mod status;

use crate::front::state::SharedState;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use calls::unary;
use tierlab_protocol::grpc::{SERVICE, health as health_messages};
use tonic::Status;

/// Router of all methods.
pub(crate) fn router(state: SharedState) -> Router {
    let mut router = Router::new()
        .route(&path(SERVICE, "ModelInfer"), post(infer::infer))
        .route(&path(SERVICE, "ModelStreamInfer"), post(infer::stream))
        .route(&path(health_messages::SERVICE, "Check"), unary(documents::check_health))
        .route(&path(health_messages::SERVICE, "Watch"), post(documents::watch_health));
    for (method, serve) in documents::methods() {
        router = router.route(&path(SERVICE, method), serve);
    }
    router.fallback(no_method).with_state(state)
}

fn path(service: &str, method: &str) -> String {
    format!("/{service}/{method}")
}

async fn no_method(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(128).collect();
    Status::unimplemented(format!("unknown method `{path}`")).into_http()
}
