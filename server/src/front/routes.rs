//! Interface between connections and fronts.
//!
//! In: any request. Out: its reply. A router is one implementation; a front with a shorter path for frequent requests is
//! another.

use crate::telemetry::labels::Front;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use std::future::Future;
use tower::Service;

/// Handler of requests.
pub(crate) trait Routes: Send + Sync + 'static {
    /// The front that they belong to. What a client calls itself (its content type) does not decide how it is answered.
    const FRONT: Front;

    /// Answers a request; one that is not served gets an answer that says so.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

/// A router by itself is gRPC's.
impl Routes for Router {
    const FRONT: Front = Front::Grpc;

    async fn answer(&self, request: Request<Body>) -> Response {
        let Ok(response) = self.clone().call(request).await;
        response
    }
}
