//! An infer request over HTTP: its body in, the pipeline, its reply out.
//!
//! In: a request. Out: the reply, or a refusal, with `Server-Timing` on both.

use super::{JSON, Server, body, coding};
use crate::manage::Target;
use crate::pipeline::{Exchange, Outcome};
use crate::refusal::Refusal;
use crate::stopwatch::Stopwatch;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Version};
use std::time::Duration;
use tierlab_protocol::infer::{Data, HEADER_LENGTH, InferReply, InferRequest};

const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A request as it came.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: Data,
    /// The length of the body's JSON part, where binary tensors follow.
    pub(super) json_len: Option<usize>,
    /// What the client's header leaves to it.
    pub(super) timeout: Option<Duration>,
}

/// A reply's body.
#[derive(Debug)]
pub(super) struct Outgoing {
    body: Bytes,
    /// The length of the body's JSON part, where binary tensors follow.
    json_len: Option<usize>,
}

impl Exchange for Incoming {
    type Reply = Outgoing;

    fn bytes(&self) -> usize {
        self.body.len()
    }

    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn decode(self) -> Result<InferRequest, Refusal> {
        Ok(InferRequest::decode(&self.body, self.json_len)?)
    }

    fn encode(reply: InferReply, binary: &[bool]) -> Outgoing {
        let (body, json_len) = reply.encode(binary);
        Outgoing { body, json_len }
    }
}

/// Answers without having read the body; a small one is passed over, so that the connection can be used again.
async fn decline(head: &Parts, body: Body, refusal: Refusal) -> Response {
    let passed_over = body::skip(&head.headers, body).await;
    let response = refusal.into_response();
    if passed_over {
        response
    } else {
        close_after(head, response)
    }
}

/// The rest of an unread body would be taken for the next request: the client is told not to send one here.
fn close_after(head: &Parts, mut response: Response) -> Response {
    if head.version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

pub(super) async fn infer(Shared(state): Shared<Server>, Path(target): Path<Target>, request: Request) -> Response {
    answer(&state, &target, request).await
}

/// Answers a request for the model that its path names.
pub(super) async fn answer(state: &Server, target: &Target, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let model = match state.find(target) {
        Ok(model) => model,
        Err(refusal) => {
            state.metrics().count_refusal("", None, &refusal);
            return decline(&head, body, refusal).await;
        }
    };
    let (passage, mut account) = match state.pipeline.enter(&model) {
        Ok(entered) => entered,
        Err(refusal) => return decline(&head, body, refusal).await,
    };
    let limits = &state.pipeline.admission.limits;
    let incoming = match body::receive(&head.headers, body, limits, &mut account).await {
        Ok(incoming) => incoming,
        Err(refusal) => {
            passage.refuse(&refusal);
            return close_after(&head, refusal.into_response());
        }
    };
    let outcome = state
        .pipeline
        .infer(passage, account, incoming, Stopwatch::start())
        .await;
    let Outcome { reply, timings, .. } = outcome;
    let mut response = match reply {
        Ok(outgoing) => {
            let content_type = if outgoing.json_len.is_some() { BINARY } else { JSON };
            let (body, encoding) = coding::deflate(&head.headers, outgoing.body);
            let mut response = Response::new(Body::from(body));
            if let Some(encoding) = encoding {
                response.headers_mut().insert(CONTENT_ENCODING, encoding);
            }
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            if let Some(len) = outgoing.json_len {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(len));
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Ok(header) = HeaderValue::from_str(&timings.to_header()) {
        response.headers_mut().insert(SERVER_TIMING, header);
    }
    response
}
