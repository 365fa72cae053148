//! gRPC's health service, for load balancers and orchestrators.
//!
//! In: the name of a service. Out: whether it takes requests, once or each time that it changes.

use super::{MAX_SMALL_BYTES, Server, wire};
use crate::served::Phase;
use axum::extract::{Request, State as Shared};
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::grpc::SERVICE;
use tierlab_protocol::grpc::health::{self, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tonic::Status;
use tonic_prost::ProstCodec;

/// How often a watcher looks whether anything has changed.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

fn status(state: &Server, service: &str) -> ServingStatus {
    if !["", SERVICE, health::SERVICE].contains(&service) {
        ServingStatus::ServiceUnknown
    } else if state.phase() == Phase::Ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status as i32 }
}

/// `Check`.
pub(super) async fn check(state: Server, request: HealthCheckRequest) -> Result<HealthCheckResponse, Status> {
    match status(&state, &request.service) {
        ServingStatus::ServiceUnknown => Err(Status::not_found("no such service")),
        status => Ok(response(status)),
    }
}

/// `Watch`.
pub(super) async fn watch(Shared(state): Shared<Server>, request: Request) -> http::Response<tonic::body::Body> {
    let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
    let mut grpc = wire(codec, request.headers(), MAX_SMALL_BYTES);
    let service = tower::service_fn(move |request: tonic::Request<HealthCheckRequest>| {
        let changes = changes(Arc::clone(&state), request.into_inner().service);
        async move { Ok::<_, Status>(tonic::Response::new(changes)) }
    });
    grpc.server_streaming(service, request).await
}

/// The status now, and each one that differs from the last. Ends when the server drains, so that the connection can.
fn changes(state: Server, service: String) -> BoxStream<'static, Result<HealthCheckResponse, Status>> {
    let next = |(state, service, last): (Server, String, Option<ServingStatus>)| async move {
        loop {
            let now = status(&state, &service);
            if last != Some(now) {
                return Some((Ok(response(now)), (state, service, Some(now))));
            }
            if state.phase() == Phase::Draining {
                return None;
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    };
    stream::unfold((state, service, None), next).boxed()
}
