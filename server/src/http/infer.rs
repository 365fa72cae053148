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
use http::{HeaderName, HeaderValue, Version};
use std::sync::Arc;
use tierlab_protocol::infer::{HEADER_LENGTH, InferReply, InferRequest};

const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A request as it came.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) body: Bytes,
    /// The length of the body's JSON part, where binary tensors follow.
    pub(super) json_len: Option<usize>,
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

    fn decode(self) -> Result<InferRequest, Refusal> {
        Ok(InferRequest::decode(&self.body, self.json_len)?)
    }

    fn encode(reply: InferReply, binary: &[bool]) -> Outgoing {
        let (body, json_len) = reply.encode(binary);
        Outgoing { body, json_len }
    }
}

pub(super) async fn infer(Shared(state): Shared<Server>, Path(target): Path<Target>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let received = body::receive(&head.headers, body, &state.pipeline.admission).await;
    let unread = received.is_err();
    let found = state.find(&target);
    let known = found.as_ref().ok().map(Arc::clone);
    // What is wrong with the target goes before what is wrong with the body.
    let (model, (incoming, _account)) = match found.and_then(|model| Ok((model, received?))) {
        Ok(taken) => taken,
        Err(refusal) => {
            let model = known.as_ref().map_or("", |model| model.name.as_str());
            state.metrics().count_refusal(model, None, &refusal);
            let mut response = refusal.into_response();
            if unread && head.version < Version::HTTP_2 {
                // The rest of the body would be taken for the next request: the client is told not to send one here.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
    };
    let Outcome { reply, timings } = state.pipeline.infer(&model, incoming, Stopwatch::start()).await;
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
