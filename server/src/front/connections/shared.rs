//! State shared by the connections of a listener: the routes behind their checks, and how a request is answered.

use super::activity::{Activity, Dismissal, OpenRequest};
use super::bodies::ReplyBody;
use super::head;
use super::listen::Bounds;
use super::tls::Tls;
use crate::front::Routes;
use crate::front::access::Access;
use crate::pipeline::Pipeline;
use crate::request::{Account, Reason, Refusal};
use crate::telemetry::Front;
use crate::telemetry::trace::observe::observe;
use crate::telemetry::trace::otlp::Telemetry;
use axum::body::{Body, HttpBody};
use axum::response::IntoResponse;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;

/// Maximum bytes of a request's head; hyper's smallest allowed buffer is 8 KiB.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;

/// Size up to which a head is not counted; most clients send smaller heads.
const FREE_HEAD_BYTES: usize = 4 << 10;
/// Approximate memory of an open HTTP/2 stream with a body: task, table entry and frame buffer.
const STREAM_BYTES: usize = 24 << 10;

/// Time in which a connection must close after it was told to. A connection with a request may finish it.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// Settings of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerConfig {
    pub(crate) bounds: Bounds,
    pub(crate) access: Access,
    /// TLS acceptor; without it, connections are unencrypted.
    pub(crate) tls: Option<Tls>,
}

/// Routes of a listener's requests, and the state that all its connections share.
pub(crate) struct Endpoint<R> {
    pub(crate) routes: R,
    pub(crate) config: ListenerConfig,
    /// Receiver of request spans, if tracing is on.
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    /// Pipeline whose admission counts replies until they are sent.
    pub(crate) pipeline: Pipeline,
}

impl<R: Routes> Endpoint<R> {
    /// Counts a large head, and a stream with a body, while the request is in progress: an HTTP/2 connection may have
    /// hundreds of slow streams.
    fn count(&self, request: &Request<Body>) -> Result<Option<Account>, Refusal> {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let headers = request.headers().iter();
        let mut bytes = headers.fold(target, |bytes, (name, value)| bytes + name.as_str().len() + value.len());
        if bytes <= FREE_HEAD_BYTES {
            bytes = 0;
        }
        if request.version() == Version::HTTP_2 && !request.body().is_end_stream() {
            bytes += STREAM_BYTES;
        }
        if bytes == 0 {
            return Ok(None);
        }
        let mut account = self.pipeline.admission.open_account();
        account.add(bytes).map(|()| Some(account))
    }

    /// Reason why a request is not answered by the routes, if any.
    fn refusal(&self, request: &Request<Body>, open: &OpenRequest) -> Option<Refusal> {
        if let Err(what) = head::check(request) {
            return Some(Refusal::bad(what));
        }
        if open.probe {
            return None;
        }
        let what = if open.activity.for_health {
            format!("too many connections: {} are open", self.config.bounds.max)
        } else if self.pipeline.admission.replies_are_full() {
            "unread replies hold all the memory available for replies".to_owned()
        } else {
            return None;
        };
        Some(Refusal::new(Reason::Full, what))
    }

    fn refuse(&self, refusal: Refusal, version: Version) -> Response<Body> {
        self.pipeline.metrics.count_refusal("", None, &refusal);
        if R::FRONT == Front::Grpc {
            return Status::from(refusal).into_http();
        }
        let mut response = refusal.into_response();
        // The body is not read, and its bytes would be taken for a request.
        if version < Version::HTTP_2 {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Answers a request of a connection. The future is boxed at once, because it has several kilobytes and hyper moves it
/// three times.
pub(super) fn answer<R: Routes>(
    server: Arc<Endpoint<R>>,
    mut request: Request<Body>,
    open: Arc<OpenRequest>,
) -> Pin<Box<impl Future<Output = Response<ReplyBody>>>> {
    if R::FRONT == Front::Grpc {
        // Streams report their waits to it.
        request.extensions_mut().insert(Arc::clone(&open));
    }
    Box::pin(async move {
        let counted = server.count(&request);
        let telemetry = server.telemetry.clone();
        let answered = observe(
            telemetry,
            R::FRONT,
            request,
            async |request: Request<Body>| match server.refusal(&request, &open) {
                Some(refusal) => server.refuse(refusal, request.version()),
                None => match counted {
                    // A probe is answered regardless of held memory.
                    Err(refusal) if !open.probe => server.refuse(refusal, request.version()),
                    _counted => server.config.access.answer(&server.routes, request).await,
                },
            },
        );
        let reply = answered.await;
        reply.map(|body| ReplyBody { body, open })
    })
}

/// Completes when a connection has to end: on request, or after a silence of `patience`.
pub(super) async fn dismissal(activity: &Activity, patience: Duration) -> Dismissal {
    tokio::select! {
        dismissal = activity.dismissed() => dismissal,
        () = activity.silent_for(patience) => Dismissal::Finish,
    }
}
