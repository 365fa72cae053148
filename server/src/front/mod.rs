//! Front: connections, the checks before every route, and the two protocols.
//!
//! In: listeners. Out: replies. HTTP and gRPC read and write messages; the pipeline answers requests.

pub(crate) mod access;
pub(crate) mod connections;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod state;

use crate::request::Refusal;
use crate::telemetry::Front;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Request, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use std::future::Future;
use std::time::Duration;
use tierlab_protocol::metadata::ErrorDocument;
use tower::Service;

/// Handler of requests.
pub(crate) trait Routes: Send + Sync + 'static {
    /// Front of the routes. It decides how requests are answered, regardless of a client's content type.
    const FRONT: Front;

    /// Answers a request; an unknown one gets an error reply.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

/// A plain router is gRPC's.
impl Routes for Router {
    const FRONT: Front = Front::Grpc;

    async fn answer(&self, request: Request<Body>) -> Response {
        let Ok(response) = self.clone().call(request).await;
        response
    }
}

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.reason.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = error(status, self.message);
        if let Some(seconds) = self.reason.retry_after_s() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

pub(crate) fn json<T: Serialize>(status: StatusCode, document: &T) -> Response {
    // Serialising documents of strings and numbers never fails.
    let body = serde_json::to_vec(document).unwrap_or_default();
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

pub(crate) fn error(status: StatusCode, message: String) -> Response {
    json(status, &ErrorDocument { error: message })
}

/// Tells the client that the connection closes, because the rest of an unread body would be taken for the next request.
pub(crate) fn close_after(version: Version, mut response: Response) -> Response {
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Maximum bytes of an unwanted body that are read so that the connection can be used again.
pub(crate) const MAX_DISCARDED_BYTES: usize = 64 << 10;
/// Time limit of reading an unwanted body.
pub(crate) const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Reads a small body to its end and discards it. Returns false if it is not small or does not end properly; hyper then
/// closes the connection.
pub(crate) async fn discard(body: Body) -> bool {
    let mut body = Limited::new(body, MAX_DISCARDED_BYTES);
    let read = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DISCARD_TIME, read).await.unwrap_or(false)
}
