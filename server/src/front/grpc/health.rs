//! gRPC's health service, for load balancers and orchestrators.
//!
//! In: the name of a service. Out: whether it takes requests, once or each time that it changes.

use super::calls::watching;
use crate::front::state::{Phase, SharedState};
use axum::extract::{Request, State as Shared};
use futures::stream::{self, BoxStream, StreamExt};
use std::time::Duration;
use tierlab_protocol::grpc::SERVICE;
use tierlab_protocol::grpc::health::{self, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use tonic::Status;

/// Interval between status checks of a watcher.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

fn status(state: &SharedState, service: &str) -> ServingStatus {
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
pub(super) async fn check(state: SharedState, request: HealthCheckRequest) -> Result<HealthCheckResponse, Status> {
    match status(&state, &request.service) {
        ServingStatus::ServiceUnknown => Err(Status::not_found("no such service")),
        status => Ok(response(status)),
    }
}

/// `Watch`.
pub(super) async fn watch(Shared(state): Shared<SharedState>, request: Request) -> http::Response<tonic::body::Body> {
    let replies = |state, request: HealthCheckRequest| changes(state, request.service);
    watching(state, request, replies).await
}

/// The status now, and each one that differs from the last. Ends when the server drains, so that the connection can.
fn changes(state: SharedState, service: String) -> BoxStream<'static, HealthCheckResponse> {
    let next = |(state, service, last): (SharedState, String, Option<ServingStatus>)| async move {
        loop {
            let now = status(&state, &service);
            if last != Some(now) {
                return Some((response(now), (state, service, Some(now))));
            }
            if state.phase() == Phase::Draining {
                return None;
            }
            tokio::time::sleep(WATCH_PAUSE).await;
        }
    };
    stream::unfold((state, service, None), next).boxed()
}
