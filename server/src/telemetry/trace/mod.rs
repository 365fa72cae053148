//! Identity of a request: its id in the log, its front in the metrics, its span over OTLP.

#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "no_otlp.rs"]
pub(crate) mod otlp;

use crate::request::Reason;
use crate::telemetry::Front;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use otlp::{RequestSpan, Telemetry};
use parking_lot::Mutex;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use tierlab_protocol::timing::StageTimings;

tokio::task_local! {
    // A look-up here costs nanoseconds; a `tracing` span for each request costs hundreds.
    static CURRENT: Arc<RequestContext>;
}

/// Context of a request in progress.
#[derive(Debug)]
pub(crate) struct RequestContext {
    id: RequestId,
    front: Front,
    /// True if a span is sent, so that the outcome of the request is recorded.
    traced: bool,
    answered: Mutex<Option<RequestOutcome>>,
}

/// Outcome of an infer request, for its span.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone)]
pub(crate) struct RequestOutcome {
    pub(crate) model: String,
    pub(crate) version: String,
    /// Rows of the request, once decoded.
    pub(crate) rows: Option<usize>,
    /// Time at which the last byte of the body arrived: the stages start here.
    pub(crate) began: Instant,
    pub(crate) timings: StageTimings,
    pub(crate) refusal: Option<Reason>,
}

/// Handle of a request's context, for work outside its task.
#[derive(Debug, Clone)]
pub(crate) struct RequestScope(Option<Arc<RequestContext>>);

impl RequestScope {
    /// Handle of the calling task's request; empty outside of a request.
    pub(crate) fn current() -> Self {
        Self(CURRENT.try_with(Arc::clone).ok())
    }

    /// Continues the request in a future that outlives its handler: a stream of replies.
    pub(crate) async fn run_async<F: Future>(self, work: F) -> F::Output {
        match self.0 {
            Some(context) => CURRENT.scope(context, work).await,
            None => work.await,
        }
    }

    /// Runs `work` as part of the request: its log lines carry the request's id.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(context) => CURRENT.sync_scope(Arc::clone(context), work),
            None => work(),
        }
    }
}

/// Calls `read` with the id of the current request, if any.
pub(crate) fn with_current_id<T>(read: impl FnOnce(&RequestId) -> T) -> Option<T> {
    CURRENT.try_with(|context| read(&context.id)).ok()
}

/// Front of the current request.
pub(crate) fn front() -> Front {
    CURRENT.try_with(|context| context.front).unwrap_or(Front::Http)
}

/// Records the outcome of the current request; `answered` is only called if a span is sent.
pub(crate) fn note_outcome(answered: impl FnOnce() -> RequestOutcome) {
    let _ = CURRENT.try_with(|context| {
        if context.traced {
            *context.answered.lock() = Some(answered());
        }
    });
}

/// Maximum bytes of a client's id; longer ones are ignored.
const MAX_BYTES: usize = 128;

/// First half of the ids generated in this process.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Id of a request in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// Id given by the client.
    Client(Box<str>),
    /// Trace id.
    Trace(u128),
    /// Generated here: a count within this process.
    Own(u64),
}

impl RequestId {
    /// Id given in a header, if valid.
    pub(crate) fn from_header(headers: &HeaderMap, name: &HeaderName) -> Option<Self> {
        let value = headers.get(name)?.to_str().ok()?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
        let is_valid = !value.is_empty() && value.len() <= MAX_BYTES && value.bytes().all(is_allowed);
        is_valid.then(|| Self::Client(value.into()))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(id) => f.write_str(id),
            Self::Trace(id) => write!(f, "{id:032x}"),
            Self::Own(count) => write!(f, "{:016x}{count:016x}", *PROCESS),
        }
    }
}

/// A `traceparent` header: W3C Trace Context, <https://www.w3.org/TR/trace-context/#traceparent-header>.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone, PartialEq, Eq)]
struct TraceParent {
    trace_id: u128,
    parent_id: u64,
    sampled: bool,
}

impl TraceParent {
    /// Parses the header; `None` if it is invalid, as the specification requires.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |len: usize| {
            let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            parts
                .next()
                .filter(|part| part.len() == len && part.bytes().all(digits))
        };
        let (version, trace_id, parent_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        // Later versions may append parts; version 0 has four.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|&id| id != 0)?;
        let parent_id = u64::from_str_radix(parent_id, 16).ok().filter(|&id| id != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self {
            trace_id,
            parent_id,
            sampled,
        })
    }
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Target of the access log, at level debug.
const ACCESS: &str = "access";

/// Line of the access log. It is written when this is dropped, after the reply or when the client goes away.
struct AccessLine {
    began: Instant,
    method: Method,
    uri: Uri,
    scope: RequestScope,
    /// Status of the reply, and its header `grpc-status`.
    status: u16,
    grpc_status: Option<HeaderValue>,
}

impl Drop for AccessLine {
    fn drop(&mut self) {
        let us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (method, path, status) = (&self.method, self.uri.path(), self.status);
        let grpc_status = self.grpc_status.as_ref().and_then(|code| code.to_str().ok());
        self.scope
            .run(|| tracing::debug!(target: ACCESS, %method, path = %path, status, grpc_status, us, "request"));
    }
}

/// Answers a request by `service` and reports it by its id.
pub(crate) async fn observe<B>(
    telemetry: Option<Arc<Telemetry>>,
    front: Front,
    request: Request<B>,
    service: impl AsyncFnOnce(Request<B>) -> Response,
) -> Response {
    let headers = request.headers();
    let parent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let parent = parent.and_then(|value| TraceParent::parse(value.trim()));
    let mut span =
        telemetry.and_then(|telemetry| telemetry.open(request.method(), request.uri().path(), parent.as_ref()));
    let client_id = RequestId::from_header(headers, &REQUEST_ID);
    let echo = client_id.is_some();
    let trace_id = parent.as_ref().map(|parent| parent.trace_id);
    let trace_id = trace_id.or_else(|| span.as_ref().map(RequestSpan::trace_id));
    let id = client_id.or(trace_id.map(RequestId::Trace));
    let id = id.unwrap_or_else(|| RequestId::Own(NEXT.fetch_add(1, Relaxed)));
    let context = Arc::new(RequestContext {
        id,
        front,
        traced: span.is_some(),
        answered: Mutex::new(None),
    });
    let access = tracing::enabled!(target: ACCESS, tracing::Level::DEBUG);
    let mut access = access.then(|| AccessLine {
        began: Instant::now(),
        method: request.method().clone(),
        uri: request.uri().clone(),
        scope: RequestScope(Some(Arc::clone(&context))),
        status: Reason::Cancelled.status(),
        grpc_status: None,
    });
    if let Some(span) = &mut span {
        span.attach(&context);
    }
    let mut response = CURRENT.scope(Arc::clone(&context), service(request)).await;
    let status = response.status();
    if let Some(span) = &mut span {
        span.set_status(status.as_u16());
    }
    // gRPC reports the status of a call without reply in a separate header.
    let grpc_status = response.headers().get("grpc-status").cloned();
    // A client that gave an id gets it back, and a refused client gets one for inquiries.
    let refused = !status.is_success() || grpc_status.as_ref().is_some_and(|code| code != "0");
    if let Some(access) = &mut access {
        (access.status, access.grpc_status) = (status.as_u16(), grpc_status);
    }
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
    use http::{HeaderValue, StatusCode};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_header_is_taken_as_it_is_or_not_at_all(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let name = HeaderName::from_static("x-request-id");
            let Ok(header) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let headers = HeaderMap::from_iter([(name.clone(), header)]);
            if let Some(id) = RequestId::from_header(&headers, &name) {
                let shown = id.to_string();
                prop_assert_eq!(shown.as_bytes(), &value[..]);
                prop_assert_eq!(serde_json::to_string(&shown).unwrap(), format!("\"{shown}\""));
                prop_assert!(shown.len() <= MAX_BYTES);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(trace in 1_u128.., parent in 1_u64.., flags in 0_u8..) {
            let text = format!("00-{trace:032x}-{parent:016x}-{flags:02x}");
            let read = TraceParent::parse(&text).unwrap();
            prop_assert_eq!(read.trace_id, trace);
            prop_assert_eq!(read.parent_id, parent);
            prop_assert_eq!(read.sampled, flags & 1 == 1);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-f-]{0,60}|.{0,60}") {
            let _ = TraceParent::parse(&text);
        }
    }

    #[test]
    fn damaged_parents_are_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(TraceParent::parse(good).is_some());
        assert!(TraceParent::parse(&good.replace("00-0af", "01-0af")).is_some());
        assert!(TraceParent::parse(&format!("01{}-more", &good[2..])).is_some());
        for bad in [
            format!("{good}-more"),
            good.replace("00-0af", "ff-0af"),
            good.to_uppercase(),
            good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            good.replace("b7ad6b7169203331", &"0".repeat(16)),
            good.replace("9c-", "-"),
            good[..good.len() - 1].to_owned(),
            String::new(),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }

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
        for (code, expected) in [("5", true), ("0", false)] {
            let reply = async |_| ([("grpc-status", code)], ()).into_response();
            let response = observe(None, Front::Grpc, Request::new(()), reply).await;
            assert_eq!(response.headers().contains_key(REQUEST_ID), expected, "{code}");
        }
    }

    #[tokio::test]
    async fn the_front_is_the_listeners_whatever_the_content_type_says() {
        for front in [Front::Grpc, Front::Http] {
            let request = Request::builder().header("content-type", "application/grpc+proto");
            observe(None, front, request.body(()).unwrap(), async |_| {
                assert_eq!(super::front(), front);
                StatusCode::OK.into_response()
            })
            .await;
        }
    }
}
