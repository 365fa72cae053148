//! Connections: accepting them, speaking HTTP/1.1 and HTTP/2 on them, and ending those that only cost.
//!
//! In: a listener, the routes, bounds. Out: requests to the routes. A connection whose client is slow to speak or to read,
//! or is silent for long, is closed here; when the room is full, the one that has been still longest makes place. Knows
//! nothing of models or of what the routes do.

mod activity;
mod bodies;
mod guarded;
mod host;
mod http2;
mod listen;
mod register;
mod tls;

use crate::front::access::{Access, Guard, is_open};
use crate::front::routes::Routes;
use crate::pipeline::admission::Admission;
use crate::pipeline::refusal::{Reason, Refusal};
use crate::telemetry::metrics::{Front as Spoken, Metrics};
use crate::telemetry::trace::otlp::Telemetry;
use crate::telemetry::trace::{self, observe};
use activity::{Activity, Dismissal};
use axum::body::Body;
use axum::response::IntoResponse;
use bodies::{Received, Reply};
use guarded::{Guarded, Protocol, Transport};
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, Version};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use register::{Entry, Register};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::Status;

pub use listen::listen;
pub(crate) use listen::{fit_files, share};
pub(crate) use tls::{Files, Tls};

/// Bytes of a request's head at most; the smallest buffer that hyper allows is 8 KiB.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The longest pause after `accept` failed, when the process is out of file descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection that was asked to end may take to say so before it is cut; one with a request may finish it.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a connection may let its replies wait while there is no memory for others, and how often this is looked at.
const PRESSED_PATIENCE: Duration = Duration::from_secs(1);
const PRESSED_PAUSE: Duration = Duration::from_millis(100);
/// The same trouble is said in the log once in this time.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// The bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Open connections at most.
    pub(crate) max: usize,
    /// Of them, those of one client's address at most.
    pub(crate) max_per_address: usize,
    /// Connections beyond, on which questions for the server's health are answered and nothing else.
    pub(crate) health_places: usize,
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
    /// Where replies are counted until they are sent.
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<R: Routes> Front<R> {
    /// Serves until `drain` says `true` (or its sender is gone), then lets every connection finish its requests; ends
    /// with the last connection.
    pub(crate) async fn serve(self, mut drain: watch::Receiver<bool>) {
        let Terms { bounds, access, tls } = self.terms;
        let register = Register::new(bounds, Arc::clone(&self.admission));
        let server = Arc::new(Server {
            telemetry: self.telemetry,
            routes: access.guard(self.routes),
            http1: http1_builder(&bounds),
            bounds,
            tls,
            admission: self.admission,
            metrics: self.metrics,
        });
        let relief = tokio::spawn(relieve(Arc::clone(&register), Arc::clone(&server.admission)));
        let mut troubles = Troubles::default();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &register, &mut troubles) => accepted,
                _ = drain.wait_for(|draining| *draining) => break,
            };
            let Some((stream, entry)) = accepted else { continue };
            let _ = stream.set_nodelay(true);
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                server.welcome(stream, &entry.activity).await;
                drop(entry);
            });
        }
        drop(self.listener);
        register.ask_everyone_to_leave();
        register.empty().await;
        relief.abort();
    }
}

/// The next connection with a place; none when there was none to take or no place for it.
async fn accept(
    listener: &TcpListener,
    register: &Arc<Register>,
    troubles: &mut Troubles,
) -> Option<(TcpStream, Entry)> {
    if register.is_crowded() {
        register.someone_left(ACCEPT_PAUSE).await;
    }
    let (stream, address) = match listener.accept().await {
        Ok(accepted) => accepted,
        // It came and went.
        Err(error) if is_of_the_connection(&error) => return None,
        Err(error) => {
            if troubles.is_news() {
                tracing::warn!(%error, "accept: where files are missing, the connection that was still longest is closed");
            }
            register.evict_stillest();
            register.someone_left(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let entry = register.enter(address.ip());
    let crowded = entry.as_ref().is_none_or(|entry| entry.activity.is_for_health());
    if crowded && troubles.is_news() {
        tracing::warn!(
            "every place is taken by a connection that works: new ones are good for health alone (`connections.max`)"
        );
    }
    Some((stream, entry?))
}

/// Whether `accept` failed for the connection that it would have given, and not for the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// When trouble was last said.
#[derive(Debug, Default)]
struct Troubles(Option<Instant>);

impl Troubles {
    fn is_news(&mut self) -> bool {
        let news = self.0.is_none_or(|last| last.elapsed() >= LOG_PAUSE);
        if news {
            self.0 = Some(Instant::now());
        }
        news
    }
}

/// While replies hold all the memory there is for them, ends the connections whose clients do not take theirs.
async fn relieve(register: Arc<Register>, admission: Arc<Admission>) {
    let mut troubles = Troubles::default();
    loop {
        admission.pressed().await;
        while admission.is_pressed() {
            if register.evict_fullest(PRESSED_PATIENCE) {
                if troubles.is_news() {
                    tracing::warn!("no memory for replies: connections whose clients take none are closed");
                }
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(PRESSED_PAUSE).await;
            }
        }
    }
}

fn http1_builder(bounds: &Bounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        // A hundred headers at most is hyper's own bound: to set one, whatever it is, fills two lists for each request.
        .max_buf_size(MAX_HEAD_BYTES);
    builder
}

/// What every connection shares.
struct Server<R> {
    routes: Guard<R>,
    http1: http1::Builder,
    bounds: Bounds,
    telemetry: Option<Arc<Telemetry>>,
    tls: Option<Tls>,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
}

impl<R: Routes> Server<R> {
    /// Serves one connection, in the clear or after its handshake.
    async fn welcome(self: &Arc<Self>, stream: TcpStream, activity: &Arc<Activity>) {
        let Some(tls) = &self.tls else {
            return self.talk(stream, activity).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.bounds.header_timeout, tls.0.accept(stream)) => handshake,
            _ = activity.dismissed() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.talk(stream, activity).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    /// Serves one connection to its end, in the protocol that its client speaks.
    async fn talk<S: Transport>(self: &Arc<Self>, stream: S, activity: &Arc<Activity>) {
        let mut stream = Guarded::new(stream, self.bounds.write_timeout, Arc::clone(activity));
        let protocol = tokio::select! {
            protocol = stream.protocol(self.bounds.header_timeout) => protocol,
            _ = activity.dismissed() => return,
        };
        match protocol {
            Ok(Protocol::Http1) => self.talk_http1(stream, activity).await,
            Ok(Protocol::Http2) => http2::serve(self, stream, activity).await,
            Err(error) => tracing::debug!(%error, "a connection ended early"),
        }
    }

    async fn talk_http1<S: Transport>(self: &Arc<Self>, stream: Guarded<S>, activity: &Arc<Activity>) {
        let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
            let request = request.map(|body| Body::new(Received::new(body, activity)));
            let answered = answer(Arc::clone(self), request, Arc::clone(activity));
            async move { Ok::<_, Infallible>(answered.await) }
        });
        let mut connection = pin!(self.http1.serve_connection(TokioIo::new(stream), service));
        // A task of its own: a connection is polled several times for each request, and then looks at one flag.
        let mut dismissed = tokio::spawn({
            let (activity, patience) = (Arc::clone(activity), self.bounds.header_timeout);
            async move { dismissal(&activity, patience).await }
        });
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => Err(ended),
            dismissal = &mut dismissed => Ok(dismissal),
        };
        dismissed.abort();
        match ended {
            Err(Ok(())) | Ok(Ok(Dismissal::Evicted) | Err(_)) => {}
            Err(Err(error)) => tracing::debug!(%error, "a connection ended early"),
            Ok(Ok(Dismissal::Finish)) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection => {}
                    () = activity.silent_for(FAREWELL) => {}
                    () = activity.evicted() => {}
                }
            }
        }
    }

    /// Why a request is not answered by the routes, where it is not.
    fn refusal(&self, request: &Request<Body>, activity: &Activity, probe: bool) -> Option<Refusal> {
        if let Err(what) = host::check(request) {
            return Some(Refusal::bad(what));
        }
        if probe {
            return None;
        }
        let what = if activity.is_for_health() {
            format!("{} connections are open, the most taken", self.bounds.max)
        } else if self.admission.is_pressed() {
            "replies that their clients have not taken hold all the memory there is for them".to_owned()
        } else {
            return None;
        };
        Some(Refusal::new(Reason::Full, what))
    }

    fn refuse(&self, refusal: Refusal, version: Version) -> Response<Body> {
        self.metrics.count_refusal("", None, &refusal);
        if trace::front() == Spoken::Grpc {
            return Status::from(refusal).into_http();
        }
        let mut response = refusal.into_response();
        // The body is not read, and may be taken for a request.
        if version < Version::HTTP_2 {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Answers a request that came on a connection.
fn answer<R: Routes>(
    server: Arc<Server<R>>,
    request: Request<Body>,
    activity: Arc<Activity>,
) -> impl Future<Output = Response<Reply>> {
    let probe = is_open(request.uri().path());
    let open = activity.open(probe);
    async move {
        let telemetry = server.telemetry.clone();
        let answered = observe(
            telemetry,
            R::FRONT,
            request,
            async |request: Request<Body>| match server.refusal(&request, &activity, probe) {
                None => server.routes.answer(request).await,
                Some(refusal) => server.refuse(refusal, request.version()),
            },
        );
        let reply = answered.await;
        reply.map(|body| Reply::new(body, &activity, open))
    }
}

/// Ends when a connection has to: it was asked to, or nothing has been said on it for `patience`.
async fn dismissal(activity: &Activity, patience: Duration) -> Dismissal {
    tokio::select! {
        dismissal = activity.dismissed() => dismissal,
        () = activity.silent_for(patience) => Dismissal::Finish,
    }
}
