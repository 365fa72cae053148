//! Replies in JSON: documents, and errors as `{"error": …}`.

use crate::request::refusal::Refusal;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tierlab_protocol::metadata::ErrorDocument;

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
    // Documents of strings and numbers serialise without fail.
    let body = serde_json::to_vec(document).unwrap_or_default();
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

pub(crate) fn error(status: StatusCode, message: String) -> Response {
    json(status, &ErrorDocument { error: message })
}
