//! Infer requests over HTTP: receives the body, runs the pipeline, sends the reply.
//!
//! In: a request. Out: the reply or a refusal, both with `Server-Timing`.

use super::Named;
use super::body::{self, Pieces};
use crate::front::state::SharedState;
use crate::front::{JSON, close_after};
use crate::models::served_models::Target;
use crate::request::{Refusal, Stopwatch};
use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use tierlab_protocol::infer::{HEADER_LENGTH, Piece};

const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Refuses a request without using its body. A small body is read and dropped, so that the connection can be used
/// again.
async fn decline(head: &Parts, body: Body, refusal: Refusal) -> Response {
    match body::discard_small(&head.headers, body).await {
        true => refusal.into_response(),
        false => close_after(head.version, refusal.into_response()),
    }
}

pub(super) async fn infer(Shared(state): Shared<SharedState>, Named(target): Named, request: Request) -> Response {
    answer(&state, &target, request).await
}

/// Answers a request for the model in its path.
pub(super) async fn answer(state: &SharedState, target: &Target, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let model = match state.manager.find(target) {
        Ok(model) => model,
        Err(refusal) => {
            state.metrics().count_refusal("", None, &refusal);
            return decline(&head, body, refusal).await;
        }
    };
    let (guard, mut account) = match state.pipeline.enter(&model) {
        Ok(entered) => entered,
        Err(refusal) => return decline(&head, body, refusal).await,
    };
    let limits = &state.pipeline.admission.limits;
    let incoming = match body::receive(&head.headers, body, limits, &mut account).await {
        Ok(incoming) => incoming,
        Err(refusal) => {
            guard.refuse(&refusal);
            return close_after(head.version, refusal.into_response());
        }
    };
    let mut watch = Stopwatch::start();
    let reply = state.pipeline.infer(guard, &mut account, incoming, &mut watch).await;
    let mut response = match reply {
        Ok((encoded, encoding)) => {
            let content_type = if encoded.json_len.is_some() { BINARY } else { JSON };
            // The connection counts the bytes handed to it.
            let body = match <[Piece; 1]>::try_from(encoded.pieces) {
                Ok([piece]) => Body::from(piece.into_bytes()),
                Err(pieces) => Body::new(Pieces::new(pieces, account)),
            };
            let mut response = Response::new(body);
            if let Some(encoding) = encoding {
                response.headers_mut().insert(CONTENT_ENCODING, encoding);
            }
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            if let Some(len) = encoded.json_len {
                let name = HeaderName::from_static(HEADER_LENGTH);
                response.headers_mut().insert(name, HeaderValue::from(len));
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Ok(header) = HeaderValue::from_str(&watch.timings.to_header()) {
        response.headers_mut().insert(SERVER_TIMING, header);
    }
    response
}
