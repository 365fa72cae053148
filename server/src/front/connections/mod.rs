//! Connections: accepting them, speaking HTTP/1.1 and HTTP/2 on them, and closing idle or slow ones.
//!
//! In: a listener, the routes, bounds. Out: requests to the routes. A connection whose client sends or reads too
//! slowly, or sends nothing for long, is closed here. At the maximum number of connections, the one that has been idle
//! longest is closed to make room. Knows nothing of models or of the routes' work.

mod activity;
mod bodies;
mod guarded;
mod head;
mod http1;
mod http2;
mod listen;
mod register;
mod shared;
mod tls;

use crate::front::Routes;
use crate::front::access::Access;
use crate::log_budget::LogBudget;
use crate::pipeline::Pipeline;
use crate::request::Admission;
use crate::telemetry::trace::otlp::Telemetry;
use activity::Activity;
use guarded::{GuardedStream, Protocol, Transport};
use register::{Entry, Register};
use shared::Server;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(in crate::front) use activity::{OpenRequest, Waiting};
pub use listen::listen;
pub(crate) use listen::{Bounds, fit_files};
pub(crate) use tls::{Tls, TlsFiles};

/// Maximum pause after `accept` failed, as when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time that replies may wait for their client while other requests lack memory, and the interval of this check.
const FULL_PATIENCE: Duration = Duration::from_secs(1);
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between log lines about the same problem.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Settings of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerConfig {
    pub(crate) bounds: Bounds,
    pub(crate) access: Access,
    /// TLS acceptor; without it, connections are unencrypted.
    pub(crate) tls: Option<Tls>,
}

/// Listener and the routes of its requests.
pub(crate) struct Endpoint<R> {
    pub(crate) listener: TcpListener,
    pub(crate) routes: R,
    pub(crate) listener_config: ListenerConfig,
    /// Receiver of request spans, if tracing is on.
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    /// Pipeline whose admission counts replies until they are sent.
    pub(crate) pipeline: Pipeline,
}

impl<R: Routes> Endpoint<R> {
    /// Serves until `drain` is `true` or its sender is dropped, then lets every connection finish its requests; ends
    /// with the last connection.
    pub(crate) async fn serve(self, mut drain: watch::Receiver<bool>) {
        let ListenerConfig { bounds, access, tls } = self.listener_config;
        let register = Register::new(bounds, Arc::clone(&self.pipeline.admission));
        let server = Arc::new(Server {
            telemetry: self.telemetry,
            access,
            routes: self.routes,
            http1: http1::builder(&bounds),
            bounds,
            tls,
            pipeline: self.pipeline,
        });
        let admission = Arc::clone(&server.pipeline.admission);
        let closing = tokio::spawn(close_unread(Arc::clone(&register), admission));
        let throttle = LogBudget::new(1, LOG_PAUSE);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &register, &throttle) => accepted,
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
        drop(self.listener);
        register.finish_all();
        register.empty().await;
        closing.abort();
    }
}

/// Accepts a connection; `None` if accepting failed or there is no room for it.
async fn accept(listener: &TcpListener, register: &Arc<Register>, throttle: &LogBudget) -> Option<(TcpStream, Entry)> {
    if register.too_many_leaving() {
        register.wait_for_leave(ACCEPT_PAUSE).await;
    }
    let (stream, address) = match listener.accept().await {
        Ok(accepted) => accepted,
        // The client has gone already.
        Err(error) if is_of_the_connection(&error) => return None,
        Err(error) => {
            if throttle.spend().is_some() {
                tracing::warn!(%error, "accept failed; closing the connection that was idle longest if file descriptors ran out");
            }
            register.evict_longest_idle();
            register.wait_for_leave(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let entry = register.enter(address.ip());
    let crowded = entry.as_ref().is_none_or(|entry| entry.activity.for_health);
    if crowded && throttle.spend().is_some() {
        tracing::warn!("all connections are busy: new ones may only request health; raise `connections.max`");
    }
    Some((stream, entry?))
}

/// True if `accept` failed for one connection and not for the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
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
            if register.evict_fullest(FULL_PATIENCE) {
                if throttle.spend().is_some() {
                    tracing::warn!("no memory for replies: closing connections whose clients do not read theirs");
                }
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(FULL_PAUSE).await;
            }
        }
    }
}

/// Serves a connection, unencrypted or after its handshake.
async fn serve_connection<R: Routes>(server: &Arc<Server<R>>, stream: TcpStream, activity: &Arc<Activity>) {
    let Some(tls) = &server.tls else {
        return serve_stream(server, stream, activity).await;
    };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(server.bounds.header_timeout, tls.0.accept(stream)) => handshake,
        _ = activity.dismissed() => return,
    };
    match handshake {
        Ok(Ok(stream)) => serve_stream(server, stream, activity).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

/// Serves a connection to its end, in its client's protocol.
async fn serve_stream<S: Transport, R: Routes>(server: &Arc<Server<R>>, stream: S, activity: &Arc<Activity>) {
    let mut stream = GuardedStream::new(stream, server.bounds.write_timeout, Arc::clone(activity));
    let protocol = tokio::select! {
        protocol = stream.protocol(server.bounds.header_timeout) => protocol,
        _ = activity.dismissed() => return,
    };
    match protocol {
        Ok(Protocol::Http1) => http1::serve(server, stream, activity).await,
        Ok(Protocol::Http2) => http2::serve(server, stream, activity).await,
        Err(error) => tracing::debug!(%error, "connection ended early"),
    }
}
