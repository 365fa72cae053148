//! Connections: accepting them, speaking HTTP/1.1 and HTTP/2 on them, and closing idle or slow ones.
//!
//! In: a listener, the routes, bounds. Out: requests to the routes. A connection whose client sends or reads too
//! slowly, or sends nothing for long, is closed here. At the maximum number of connections, the one that has been idle
//! longest is closed to make room. Knows nothing of models or of the routes' work.

mod activity;
mod guarded;
mod http2;
mod listen;
mod register;
mod shared;

use crate::front::Routes;
use crate::front::access::is_health_path;
use crate::log_budget::LogBudget;
use crate::request::Admission;
use activity::{Activity, CloseReason, RequestBody};
pub(in crate::front) use activity::{OpenRequest, WaitGuard};
use axum::body::Body;
use guarded::{GuardedStream, Protocol, Transport};
use http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
pub use listen::listen;
pub(crate) use listen::{Bounds, TlsFiles, fit_files};
use register::{Entry, Register};
use shared::{CLOSE_TIMEOUT, MAX_HEAD_BYTES, answer, close_reason};
pub(crate) use shared::{Endpoint, ListenerConfig};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Maximum pause after `accept` failed, as when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time that replies may wait for their client while other requests lack memory, and the interval of this check.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);
const UNREAD_POLL: Duration = Duration::from_millis(100);
/// Minimum interval between log lines about the same problem.
const LOG_PAUSE: Duration = Duration::from_secs(10);

impl<R: Routes> Endpoint<R> {
    /// Serves until `drain` is `true` or its sender is dropped, then lets every connection finish its requests; ends
    /// with the last connection.
    pub(crate) async fn serve(self, listener: TcpListener, mut drain: watch::Receiver<bool>) {
        let server = Arc::new(self);
        let admission = &server.pipeline.admission;
        let register = Register::new(server.config.bounds, Arc::clone(admission));
        let closing = tokio::spawn(close_unread(Arc::clone(&register), Arc::clone(admission)));
        let throttle = LogBudget::new(1, LOG_PAUSE);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &register, &throttle) => accepted,
                _ = drain.wait_for(|draining| *draining) => break,
            };
            let Some((stream, entry)) = accepted else { continue };
            let _ = stream.set_nodelay(true);
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                serve_connection(&server, stream, &entry.activity).await;
                drop(entry);
            });
        }
        drop(listener);
        register.finish_all();
        register.wait_until_empty().await;
        closing.abort();
    }
}

/// Accepts a connection; `None` if accepting failed or there is no room for it.
async fn accept(listener: &TcpListener, register: &Arc<Register>, throttle: &LogBudget) -> Option<(TcpStream, Entry)> {
    if register.too_many_closing() {
        register.wait_for_removal(ACCEPT_PAUSE).await;
    }
    let (stream, address) = match listener.accept().await {
        Ok(accepted) => accepted,
        // The client has gone already.
        Err(error) if is_connection_error(&error) => return None,
        Err(error) => {
            if throttle.spend().is_some() {
                tracing::warn!(%error, "accept failed; closing the connection that was idle longest if file descriptors ran out");
            }
            register.evict_longest_idle();
            register.wait_for_removal(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let entry = register.enter(address.ip());
    let at_limit = entry.as_ref().is_none_or(|entry| entry.activity.for_health);
    if at_limit && throttle.spend().is_some() {
        tracing::warn!(
            "no connection is free: new ones only serve health; raise `connections.max` or `max_per_address`"
        );
    }
    Some((stream, entry?))
}

/// True if `accept` failed for one connection and not for the listener.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// While replies hold all the memory available for them, closes the connections whose clients do not read theirs.
async fn close_unread(register: Arc<Register>, admission: Arc<Admission>) {
    let throttle = LogBudget::new(1, LOG_PAUSE);
    loop {
        admission.replies_full().await;
        while admission.replies_are_full() {
            if register.evict_most_unread(UNREAD_TIMEOUT) {
                if throttle.spend().is_some() {
                    tracing::warn!("no memory for replies: closing connections whose clients do not read theirs");
                }
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(UNREAD_POLL).await;
            }
        }
    }
}

/// Serves a connection, unencrypted or after its handshake.
async fn serve_connection<R: Routes>(server: &Arc<Endpoint<R>>, stream: TcpStream, activity: &Arc<Activity>) {
    let Some(tls) = &server.config.tls else {
        return serve_stream(server, stream, activity).await;
    };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(server.config.bounds.header_timeout, tls.0.accept(stream)) => handshake,
        _ = activity.close_requested() => return,
    };
    match handshake {
        Ok(Ok(stream)) => serve_stream(server, stream, activity).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

/// Serves a connection to its end, in its client's protocol.
async fn serve_stream<S: Transport, R: Routes>(server: &Arc<Endpoint<R>>, stream: S, activity: &Arc<Activity>) {
    let bounds = &server.config.bounds;
    let mut stream = GuardedStream::new(stream, bounds.write_timeout, Arc::clone(activity));
    let protocol = tokio::select! {
        protocol = stream.protocol(bounds.header_timeout) => protocol,
        _ = activity.close_requested() => return,
    };
    match protocol {
        Ok(Protocol::Http1) => serve_http1(server, stream, activity).await,
        Ok(Protocol::Http2) => http2::serve(server, stream, activity).await,
        Err(error) => tracing::debug!(%error, "connection ended early"),
    }
}

/// Serves an HTTP/1 connection to its end.
async fn serve_http1<S: Transport, R: Routes>(
    server: &Arc<Endpoint<R>>,
    stream: GuardedStream<S>,
    activity: &Arc<Activity>,
) {
    let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
        let open = activity.open(is_health_path(request.uri().path()));
        let request = request.map(|body| Body::new(RequestBody::new(body, &open)));
        let reply = answer(Arc::clone(server), request, open);
        async move { Ok::<_, Infallible>(reply.await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(server.config.bounds.header_timeout)
        // hyper's own limit of 100 headers is kept: setting any limit makes it fill two lists for each request.
        .max_buf_size(MAX_HEAD_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // A separate task, because a connection is polled several times for each request, and then only reads a flag.
    let mut close_request = tokio::spawn({
        let (activity, timeout) = (Arc::clone(activity), server.config.bounds.header_timeout);
        async move { close_reason(&activity, timeout).await }
    });
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Err(ended),
        close_reason = &mut close_request => Ok(close_reason),
    };
    close_request.abort();
    match ended {
        Err(Ok(())) | Ok(Ok(CloseReason::Evicted) | Err(_)) => {}
        Err(Err(error)) => tracing::debug!(%error, "connection ended early"),
        Ok(Ok(CloseReason::Graceful)) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                _ = connection => {}
                () = activity.silent_for(CLOSE_TIMEOUT) => {}
                () = activity.evicted() => {}
            }
        }
    }
}
