//! Answers a request and reports it: by its id in the log, by its front in the metrics, by its span over OTLP.
//!
//! In: a request from a connection, and the service that answers it. Out: the service's reply, with the id if the
//! client wants it. Knows nothing of how requests are answered.

use super::{RequestContext, RequestScope, scope};
use super::id::{RequestId, TraceParent};
use super::otlp::{RequestSpan, Telemetry};
use crate::telemetry::Front;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Request};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Target of the access log, at level debug.
const ACCESS: &str = "access";

/// Answers a request by `service` and reports it by its id.
pub(crate) async fn observe<B>(
    telemetry: Option<Arc<Telemetry>>,
    front: Front,
    request: Request<B>,
    service: impl AsyncFnOnce(Request<B>) -> Response,
) -> Response {
    let headers = request.headers();
    let parent = TraceParent::of(headers);
    let mut span =
        telemetry.and_then(|telemetry| telemetry.open(request.method(), request.uri().path(), parent.as_ref()));
    let given = RequestId::given(headers, &REQUEST_ID);
    let echo = given.is_some();
    let trace_id = parent.as_ref().map(|parent| parent.trace_id);
    let trace_id = trace_id.or_else(|| span.as_ref().map(RequestSpan::trace_id));
    let id = given
        .or(trace_id.map(RequestId::Trace))
        .unwrap_or_else(RequestId::generate);
    let context = Arc::new(RequestContext {
        id,
        front,
        traced: span.is_some(),
        answered: Mutex::new(None),
    });
    let access = tracing::enabled!(target: ACCESS, tracing::Level::DEBUG);
    let access = access.then(|| (Instant::now(), request.method().clone(), request.uri().clone()));
    if let Some(span) = &mut span {
        span.belong_to(&context);
    }
    let mut response = scope(&context, service(request)).await;
    let status = response.status();
    if let Some(span) = &mut span {
        span.answered_with(status.as_u16());
    }
    if let Some((began, method, uri)) = access {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        RequestScope(Some(Arc::clone(&context))).run(|| {
            tracing::debug!(target: ACCESS, %method, path = %uri.path(), status = status.as_u16(), us, "answered");
        });
    }
    // A client that gave an id gets it back, and a refused client gets one for inquiries. gRPC reports the status of a
    // call without reply in a separate header.
    let refused = !status.is_success() || response.headers().get("grpc-status").is_some_and(|code| code != "0");
    if (echo || refused)
        && let Ok(value) = HeaderValue::try_from(context.id.to_string())
    {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::with_current_id;
    use axum::response::IntoResponse;
    use http::StatusCode;

    async fn answered(request: Request<()>, status: StatusCode) -> (Response, String) {
        let mut seen = String::new();
        let mut later = None;
        let response = observe(None, Front::Http, request, async |_| {
            seen = with_current_id(ToString::to_string).unwrap();
            // On another thread, as a session does it.
            let (scope, expected) = (RequestScope::current(), seen.clone());
            let there = std::thread::spawn(move || scope.run(|| with_current_id(ToString::to_string)));
            assert_eq!(there.join().unwrap(), Some(expected));
            // In a stream of replies, which goes on when the handler has ended.
            let (scope, expected) = (RequestScope::current(), seen.clone());
            later =
                Some(scope.run_async(async move { assert_eq!(with_current_id(ToString::to_string), Some(expected)) }));
            status.into_response()
        })
        .await;
        later.unwrap().await;
        (response, seen)
    }

    #[tokio::test]
    async fn the_id_is_the_clients_or_the_traces_or_a_new_one() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let request = |headers: &[(&str, &str)]| {
            let mut request = Request::builder();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            request.body(()).unwrap()
        };
        let ok = StatusCode::OK;
        let (response, id) = answered(request(&[("x-request-id", "order-17"), ("traceparent", trace)]), ok).await;
        assert_eq!(
            (id.as_str(), response.headers()[REQUEST_ID].as_bytes()),
            ("order-17", &b"order-17"[..])
        );
        let (response, id) = answered(request(&[("traceparent", trace)]), ok).await;
        assert_eq!(id, "0af7651916cd43dd8448eb211c80319c");
        assert!(!response.headers().contains_key(REQUEST_ID));
        // An id that could break a log line is not taken over.
        let (_, first) = answered(request(&[("x-request-id", "a\" b")]), ok).await;
        let (refused, second) = answered(request(&[]), StatusCode::NOT_FOUND).await;
        assert!(
            first.len() == 32 && second.len() == 32 && first != second,
            "{first} {second}"
        );
        assert_eq!(refused.headers()[REQUEST_ID], second.as_str());
        assert!(with_current_id(|_| ()).is_none());
    }

    #[tokio::test]
    async fn a_refused_grpc_call_has_an_id_to_ask_about() {
        for (code, told) in [("5", true), ("0", false)] {
            let reply = async |_| ([("grpc-status", code)], ()).into_response();
            let response = observe(None, Front::Grpc, Request::new(()), reply).await;
            assert_eq!(response.headers().contains_key(REQUEST_ID), told, "{code}");
        }
    }

    #[tokio::test]
    async fn the_front_is_the_listeners_whatever_the_content_type_says() {
        for front in [Front::Grpc, Front::Http] {
            let request = Request::builder().header("content-type", "application/grpc+proto");
            observe(None, front, request.body(()).unwrap(), async |_| {
                assert_eq!(trace::front(), front);
                StatusCode::OK.into_response()
            })
            .await;
        }
    }
}
