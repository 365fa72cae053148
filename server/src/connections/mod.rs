//! Connections: accepting them, speaking HTTP/1.1 and HTTP/2 on them, and ending those that only cost.
//!
//! In: a listener, the routes, bounds. Out: requests to the routes. A connection whose client is slow to speak or to read,
//! or is silent for long, is closed here; when the room is full, the one that was silent longest makes place. Knows nothing
//! of models or of what the routes do.

mod activity;
mod guarded;
mod tls;

use crate::access::{Access, Guard};
use crate::routes::Routes;
use crate::trace::observe;
use crate::trace::otlp::Telemetry;
use activity::{Activity, Open, Register};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use guarded::Guarded;
use http::Request;
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub(crate) use tls::{Files, Tls};

/// Bytes of a request's head at most; the smallest buffer that hyper allows is 8 KiB.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// HTTP/2 streams of one connection at most.
const MAX_STREAMS: u32 = 256;
/// The pause after `accept` failed, when the process is out of file descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection that was asked to end may take to say so before it is cut; one with a request may finish it.
const FAREWELL: Duration = Duration::from_secs(1);

/// The bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Open connections at most.
    pub(crate) max: usize,
    /// For a request's head to arrive; a connection without a request is closed after it.
    pub(crate) header_timeout: Duration,
    /// For a client to take the next part of a reply.
    pub(crate) write_timeout: Duration,
}

/// On what terms a listener takes connections and requests.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) bounds: Bounds,
    pub(crate) access: Access,
    /// Without it, connections are in the clear.
    pub(crate) tls: Option<Tls>,
}

/// Where connections come from, and where their requests go.
pub(crate) struct Front<R> {
    pub(crate) listener: TcpListener,
    pub(crate) routes: R,
    pub(crate) terms: Terms,
    /// Where spans of requests go, where they go anywhere.
    pub(crate) telemetry: Option<Arc<Telemetry>>,
}

impl<R: Routes> Front<R> {
    /// Serves until `drain` says `true` (or its sender is gone), then lets every connection finish its requests; ends
    /// with the last connection.
    pub(crate) async fn serve(self, mut drain: watch::Receiver<bool>) {
        let Terms { bounds, access, tls } = self.terms;
        let seats = u32::try_from(bounds.max).unwrap_or(u32::MAX);
        let room = Room {
            seats: Arc::new(Semaphore::new(seats as usize)),
            register: Arc::default(),
        };
        let server = Arc::new(Server {
            telemetry: self.telemetry,
            routes: access.guard(self.routes),
            builder: builder(&bounds),
            bounds,
            tls,
        });
        loop {
            let accepted = tokio::select! {
                accepted = room.accept(&self.listener) => accepted,
                _ = drain.wait_for(|draining| *draining) => break,
            };
            let Some((stream, seat)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (server, entry) = (Arc::clone(&server), room.register.enter());
            tokio::spawn(async move {
                server.welcome(stream, &entry.activity).await;
                drop((entry, seat));
            });
        }
        drop(self.listener);
        room.register.ask_everyone_to_leave();
        let _ = room.seats.acquire_many(seats).await;
    }
}

/// The connections there may be, and those there are.
struct Room {
    seats: Arc<Semaphore>,
    register: Arc<Register>,
}

impl Room {
    /// The next connection, once there is a seat for it; none when `accept` failed.
    async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept");
                return None;
            }
        };
        if let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() {
            return Some((stream, seat));
        }
        self.register.ask_the_idlest_to_leave();
        let seat = Arc::clone(&self.seats).acquire_owned().await.ok()?;
        Some((stream, seat))
    }
}

fn builder(bounds: &Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        // A hundred headers at most is hyper's own bound: to set one, whatever it is, fills two lists for each request.
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .keep_alive_interval(bounds.header_timeout);
    builder
}

/// What every connection shares.
struct Server<R> {
    routes: Guard<R>,
    builder: auto::Builder<TokioExecutor>,
    bounds: Bounds,
    telemetry: Option<Arc<Telemetry>>,
    tls: Option<Tls>,
}

impl<R: Routes> Server<R> {
    /// Serves one connection, in the clear or after its handshake.
    async fn welcome(self: &Arc<Self>, stream: TcpStream, activity: &Arc<Activity>) {
        let Some(tls) = &self.tls else {
            return self.talk(stream, activity).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.bounds.header_timeout, tls.0.accept(stream)) => handshake,
            () = activity.asked_to_leave() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.talk(stream, activity).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    /// Serves one connection to its end.
    async fn talk<S>(self: &Arc<Self>, stream: S, activity: &Arc<Activity>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(Guarded::new(stream, &self.bounds, Arc::clone(activity)));
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
            let (server, open) = (Arc::clone(self), activity.open());
            let telemetry = self.telemetry.clone();
            let answered = observe(telemetry, request.map(Body::new), async move |request| {
                server.routes.answer(request).await
            });
            async move { Ok::<_, Infallible>(answered.await.map(|body| Reply { body, _open: open })) }
        });
        let mut connection = pin!(self.builder.serve_connection(io, service));
        // A task of its own: a connection is polled several times for each request, and then looks at one flag.
        let mut dismissed = tokio::spawn({
            let (activity, patience) = (Arc::clone(activity), self.bounds.header_timeout);
            async move {
                tokio::select! {
                    () = activity.asked_to_leave() => {}
                    () = activity.silent_for(patience) => {}
                }
            }
        });
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => Some(ended),
            _ = &mut dismissed => None,
        };
        dismissed.abort();
        if let Some(ended) = ended {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
            return;
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = activity.silent_for(FAREWELL) => {}
        }
    }
}

/// A reply's body; its request stays open until it is handed to the connection.
struct Reply {
    body: Body,
    _open: Open,
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
