//! State shared by the connections of a listener: the routes behind their checks, and how a request is answered.

use super::activity::{Activity, CloseReason, OpenRequest, ReplyBody};
use super::listen::{Bounds, Tls};
use crate::front::access::Access;
use crate::front::{Routes, close_after};
use crate::pipeline::Pipeline;
use crate::request::{Account, Reason, Refusal};
use crate::telemetry::Front;
use crate::telemetry::trace::observe;
use crate::telemetry::trace::otlp::Telemetry;
use anyhow::{Result, bail, ensure};
use axum::body::{Body, HttpBody};
use axum::response::IntoResponse;
use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
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
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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
        if let Err(error) = check_host(request).and_then(|()| check_framing(request.headers())) {
            return Some(Refusal::bad(error.to_string()));
        }
        if open.probe {
            return None;
        }
        let message = if open.activity.for_health {
            let (max, each) = (self.config.bounds.max, self.config.bounds.per_address());
            format!("too many connections: at most {max} in all and {each} of one address")
        } else if self.pipeline.admission.replies_are_full() {
            "unread replies hold all the memory available for replies".to_owned()
        } else {
            return None;
        };
        Some(Refusal::new(Reason::Full, message))
    }

    fn refuse(&self, refusal: Refusal, version: Version) -> Response<Body> {
        self.pipeline.metrics.count_refusal("", None, &refusal);
        if R::FRONT == Front::Grpc {
            return Status::from(refusal).into_http();
        }
        close_after(version, refusal.into_response())
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

/// Completes when a connection has to end: on request, or after a silence of `timeout`.
pub(super) async fn close_reason(activity: &Activity, timeout: Duration) -> CloseReason {
    tokio::select! {
        close_reason = activity.close_requested() => close_reason,
        () = activity.silent_for(timeout) => CloseReason::Graceful,
    }
}

/// Checks the host of a request. HTTP/1.1 requires the header `Host` exactly once (RFC 9112, section 3.2); HTTP/1.0
/// does not. In HTTP/2 `:authority` replaces it, and a `Host` beside it must match (RFC 9113, section 8.3.1).
fn check_host<B>(request: &Request<B>) -> Result<()> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    ensure!(second.is_none(), "duplicate header `Host`");
    let version = request.version();
    let Some(host) = host else {
        return match version {
            Version::HTTP_11 => bail!("missing header `Host`, required by HTTP/1.1"),
            _ => Ok(()),
        };
    };
    if !is_host(host) {
        bail!("invalid header `Host`: use a name or address, with or without a port");
    }
    match request.uri().authority() {
        // In HTTP/1 the host of an absolute URL overrides `Host`.
        Some(authority) if version == Version::HTTP_2 && !names(host, authority) => {
            bail!("`:authority` and the header `Host` differ")
        }
        _ => Ok(()),
    }
}

/// True if the value is a valid host. An empty value is sent for a target without a host. After an address in brackets
/// only a port may follow.
fn is_host(value: &HeaderValue) -> bool {
    let mut parts = value.as_bytes().split(|&byte| byte == b']');
    let (host, port) = (parts.next().unwrap_or_default(), parts.next());
    let (host, is_port) = match (host.strip_prefix(b"["), port) {
        (Some(address), Some(port)) => (address, port.is_empty() || port.starts_with(b":")),
        (None, None) => (host, true),
        _ => (host, false),
    };
    // A pattern instead of a search in a list, because every request is checked. The range is `$%&'()*+,-.`.
    let is_mark = |byte: u8| matches!(byte, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'_' | b'~');
    let is_allowed = |&byte: &u8| byte.is_ascii_alphanumeric() || is_mark(byte);
    let is_plain = |bytes: &[u8]| bytes.iter().all(is_allowed);
    is_port && parts.next().is_none() && is_plain(host) && port.is_none_or(is_plain)
}

fn names(host: &HeaderValue, authority: &Authority) -> bool {
    host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes())
}

/// Checks the transfer codings of a body in HTTP/1. Only a single `chunked` is supported (RFC 9112, section 6.1): hyper
/// looks for it at the end of the list and ignores the others, so that their bytes would be taken for the body's. It
/// refuses contradictory lengths itself, and closes the connection after a request with both a length and chunks.
fn check_framing(headers: &HeaderMap) -> Result<()> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_chunked(coding) => Ok(()),
        _ => bail!("unsupported header `Transfer-Encoding`: use only `chunked`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        check_host(&request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn a_request_names_its_host_once() {
        let (one, old, two) = (Version::HTTP_11, Version::HTTP_10, Version::HTTP_2);
        for (version, uri, hosts, good) in [
            (one, "/v2", &["a"][..], true),
            (one, "/v2", &["127.0.0.1:8000"], true),
            (one, "/v2", &["[::1]:8000"], true),
            (one, "/v2", &[""], true),
            (one, "/v2", &[], false),
            (one, "/v2", &["a", "a"], false),
            (one, "/v2", &["a b"], false),
            (one, "/v2", &["a/b"], false),
            (one, "/v2", &["u@a"], false),
            (one, "/v2", &["[::1]"], true),
            (one, "/v2", &["[::1].a"], false),
            (one, "/v2", &["[::1]:80]"], false),
            (one, "/v2", &["[::1"], false),
            (one, "/v2", &["a[::1]"], false),
            (one, "http://b/v2", &["a"], true),
            (one, "http://b/v2", &[], false),
            (old, "/v2", &[], true),
            (old, "/v2", &["a", "b"], false),
            (two, "http://a/v2", &[], true),
            (two, "http://a/v2", &["A"], true),
            (two, "http://a/v2", &["b"], false),
            (two, "http://a/v2", &["a", "a"], false),
            (two, "/v2", &["a"], true),
            (two, "/v2", &[], true),
        ] {
            assert_eq!(checked(version, uri, hosts), good, "{version:?} {uri} {hosts:?}");
        }
    }

    #[test]
    fn only_chunked_is_spoken_and_only_once() {
        for (codings, good) in [
            (&[][..], true),
            (&["chunked"], true),
            (&["Chunked"], true),
            (&["gzip, chunked"], false),
            (&["gzip", "chunked"], false),
            (&["chunked", "chunked"], false),
            (&["chunked, chunked"], false),
            (&["identity"], false),
            (&[""], false),
        ] {
            let codings = codings
                .iter()
                .map(|&coding| (TRANSFER_ENCODING, HeaderValue::from_static(coding)));
            assert_eq!(check_framing(&codings.clone().collect()).is_ok(), good, "{codings:?}");
        }
    }
}
