//! Pool of connections to one server, whose address is resolved again if it stops answering. Connections are opened
//! when needed, carry many calls each, and are replaced when they break, at a new port if the server has moved.
//!
//! In: calls with their retry rules. Out: replies and their costs. A call goes to the connection with the fewest calls
//! in flight. Once admitted, a call has one time limit for connecting, waiting and retries together. Knows nothing of
//! NFS's procedures.

use super::connection::Connection;
use super::rpc::{Call, CallError, Head};
use super::waiting::{CallPermit, Landing, LoadClaim, Outgoing, Reply};
use crate::retry::{Backoff, Retries};
use crate::{ErrorKind, ReadCost, StorageError};
use async_trait::async_trait;
use futures::FutureExt as _;
use nfs3_types::rpc::opaque_auth;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// Maximum calls in flight per connection; more calls wait in the pool.
const WINDOW: usize = 128;
/// Data unit, in bytes. Replies with more data than this also count by their data units: a server that prepares many
/// large replies at once does so in cold memory, and small replies wait behind them.
const UNIT_BYTES: usize = 64 << 10;
/// Waits before retries.
const BACKOFF: Backoff = Backoff::spread(Duration::from_millis(20), Duration::from_millis(500), 1.0, 1.0);

/// Retry rule for a call that may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Retry: running the call twice equals running it once.
    Safe,
    /// Retry only if the call certainly has not run.
    Never,
}

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connections: usize,
    /// Maximum bytes requested at a time per connection by calls with large replies.
    pub(super) in_flight_bytes: usize,
    /// Time limit of a call.
    pub(super) call: Duration,
    /// If true, connects from a privileged source port.
    pub(super) privileged: bool,
}

impl Limits {
    /// Limits for a few small calls.
    pub(super) const fn few(call: Duration, privileged: bool) -> Self {
        Self {
            connections: 1,
            in_flight_bytes: 0,
            call,
            privileged,
        }
    }
}

/// Connections to one address.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) address: Address,
    privileged: bool,
    head: Head,
    /// Time limit of a call.
    pub(super) limit: Duration,
    calls: Arc<Semaphore>,
    data: Arc<Semaphore>,
    data_units: usize,
    slots: Vec<Slot>,
}

/// Slot for a connection.
#[derive(Debug, Default)]
struct Slot {
    /// Calls that have chosen it, and their units of data.
    load: Arc<AtomicUsize>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is opened.
    opening: tokio::sync::Mutex<()>,
}

impl Slot {
    fn usable(&self) -> Option<Arc<Connection>> {
        let mut connection = self.connection.lock();
        if connection.as_ref().is_some_and(|connection| connection.is_broken()) {
            *connection = None;
        }
        connection.clone()
    }
}

impl Pool {
    pub(super) fn new(address: Address, credential: &opaque_auth<'static>, limits: &Limits) -> Self {
        let connections = limits.connections.max(1);
        let many = |each: usize| connections.saturating_mul(each).min(Semaphore::MAX_PERMITS);
        let data_units = many(limits.in_flight_bytes.div_ceil(UNIT_BYTES).max(1));
        Self {
            address,
            privileged: limits.privileged,
            head: Head::new(credential),
            limit: limits.call,
            calls: Arc::new(Semaphore::new(many(WINDOW))),
            data: Arc::new(Semaphore::new(data_units)),
            data_units,
            slots: std::iter::repeat_with(Slot::default).take(connections).collect(),
        }
    }

    /// Makes a call; `about` is named in errors. Adds the cost to `cost`.
    pub(super) async fn call(
        &self,
        about: &str,
        call: &Call,
        landing: Option<Landing>,
        repeat: Repeat,
        cost: &mut ReadCost,
    ) -> Result<Reply, StorageError> {
        let error = match self.attempts(call, landing, repeat, cost).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let kind = match error {
            CallError::Denied(_) => ErrorKind::Denied,
            CallError::Unable(_) => ErrorKind::Unsupported,
            CallError::Late => ErrorKind::Timeout,
            CallError::Broken(_) | CallError::Protocol(_) => ErrorKind::Unavailable,
        };
        let what = match error {
            CallError::Late => format!(" did not answer within {} ms", self.limit.as_millis()),
            _ => format!(": {error}"),
        };
        Err(kind.error(about, format!("NFS server {}{what}", self.address.get())))
    }

    /// Makes a call that may be retried and has no landing buffer. Its cost is not counted.
    pub(super) async fn ask(&self, about: &str, call: &Call) -> Result<Reply, StorageError> {
        let mut cost = ReadCost::default();
        self.call(about, call, None, Repeat::Safe, &mut cost).await
    }

    async fn attempts(
        &self,
        call: &Call,
        landing: Option<Landing>,
        repeat: Repeat,
        cost: &mut ReadCost,
    ) -> Result<Reply, CallError> {
        let begun = Instant::now();
        let room = landing.as_ref().map_or(0, |landing| landing.room);
        // The clock is read again only after a wait.
        let (permit, mut at) = match self.permit(room).now_or_never() {
            Some(permit) => (permit?, begun),
            None => (self.permit(room).await?, Instant::now()),
        };
        let mut permit = Some(permit);
        let outgoing = Outgoing::new(call, &self.head, at + self.limit);
        let mut of_call = ReadCost {
            via: ViaSet::of(Via::Nfs),
            queue: at - begun,
            ..ReadCost::default()
        };
        let again = landing.as_ref().map(Landing::again);
        let mut landing = landing;
        let mut retries = Retries::new(BACKOFF, at, self.limit, u32::MAX);
        let result = loop {
            of_call.requests += 1;
            let attempt = self.attempt(&outgoing, permit.take(), landing.take(), at, &mut of_call);
            let (error, is_sent) = match attempt.await {
                Ok(reply) => {
                    of_call.wire_bytes += reply.wire_bytes;
                    break Ok(reply);
                }
                Err(failure) => failure,
            };
            let repeatable = match error {
                CallError::Late => false,
                CallError::Broken(_) if is_sent => repeat == Repeat::Safe,
                _ => !is_sent,
            };
            let Some(wait) = repeatable.then(|| retries.next(Duration::ZERO)).flatten() else {
                break Err(error);
            };
            landing = again.as_ref().map(Landing::again);
            of_call.retries += 1;
            tokio::time::sleep(wait).await;
            at = Instant::now();
        };
        // The calls of one client follow each other.
        cost.then(&of_call);
        result
    }

    /// Makes one attempt that began at `began`, with the given permit or else a new permit. An error comes with true if
    /// the server may have seen the call.
    async fn attempt(
        &self,
        outgoing: &Outgoing<'_>,
        permit: Option<CallPermit>,
        landing: Option<Landing>,
        began: Instant,
        cost: &mut ReadCost,
    ) -> Result<Reply, (CallError, bool)> {
        let unsent = |error: CallError| (error, false);
        let room = landing.as_ref().map_or(0, |landing| landing.room);
        let permit = match permit {
            Some(permit) => permit,
            None => {
                let permit = tokio::time::timeout_at(outgoing.deadline.into(), self.permit(room)).await;
                permit.unwrap_or(Err(CallError::Late)).map_err(unsent)?
            }
        };
        let load = |slot: &&Slot| slot.load.load(Ordering::Relaxed);
        let slot = self.slots.iter().min_by_key(load);
        let slot = slot.ok_or_else(|| unsent(CallError::Broken("pool has no connections".to_owned())))?;
        let claim = LoadClaim::new(Arc::clone(&slot.load), permit);
        let (connection, sent) = match slot.usable() {
            Some(connection) => (connection, began),
            None => {
                let opened = Box::pin(self.open(slot, outgoing.deadline)).await;
                (opened.map_err(unsent)?, Instant::now())
            }
        };
        cost.queue += sent - began;
        let answer = connection.submit(outgoing, landing, claim, sent).map_err(unsent)?;
        let answer = answer.await;
        cost.device += sent.elapsed();
        // Without an answer the connection ended while the reply was arriving.
        let answer = answer.unwrap_or_else(|_| Err(CallError::Broken("connection broke within a reply".to_owned())));
        answer.map_err(|error| (error, true))
    }

    /// Waits for a slot among the calls in flight. Each call ends within its limit, so the wait ends too, in order of
    /// arrival.
    async fn permit(&self, room: usize) -> Result<CallPermit, CallError> {
        // The semaphores are never closed.
        let closed = |_| CallError::Broken("pool is closed".to_owned());
        let data = match room.div_ceil(UNIT_BYTES).min(self.data_units) as u32 {
            0 | 1 => None,
            units => Some(Arc::clone(&self.data).acquire_many_owned(units).await.map_err(closed)?),
        };
        let _call = Arc::clone(&self.calls).acquire_owned().await.map_err(closed)?;
        Ok(CallPermit { _call, data })
    }

    /// Opens the slot's connection, unless another call has done so meanwhile.
    async fn open(&self, slot: &Slot, deadline: Instant) -> Result<Arc<Connection>, CallError> {
        let open = async {
            let _opening = slot.opening.lock().await;
            if let Some(connection) = slot.usable() {
                return Ok(connection);
            }
            let stream = self.address.dial(self.privileged).await?;
            let connection = Arc::new(Connection::start(stream, self.limit));
            *slot.connection.lock() = Some(Arc::clone(&connection));
            Ok(connection)
        };
        let opened = tokio::time::timeout_at(deadline.into(), open).await;
        opened.unwrap_or(Err(CallError::Late))
    }
}

/// Source ports that servers trust with the `secure` option.
const PRIVILEGED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

/// Connects, from a privileged port if requested and permitted: servers with the `secure` option require it.
async fn dial(address: SocketAddr, privileged: bool) -> io::Result<TcpStream> {
    let from_privileged = match privileged {
        true => from_privileged_port(address).await?,
        false => None,
    };
    let stream = match from_privileged {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn from_privileged_port(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let count = u32::from(PRIVILEGED_PORTS.end() - PRIVILEGED_PORTS.start()) + 1;
    let start = super::rpc::next_xid();
    for i in 0..count {
        let (socket, any): (_, IpAddr) = if address.is_ipv4() {
            (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into())
        } else {
            (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into())
        };
        let port = PRIVILEGED_PORTS.start() + u16::try_from(start.wrapping_add(i) % count).unwrap_or_default();
        match socket.bind(SocketAddr::new(any, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            Err(_) => continue, // taken
        }
        match socket.connect(address).await {
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

/// Time limit for resolving again: the program may be back at its old port before the resolver is.
const AGAIN_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for a connection while there are other addresses to try.
const DIAL_LIMIT: Duration = Duration::from_secs(1);

/// Resolver of a program's current addresses, at least one.
#[async_trait]
pub(super) trait Resolve: fmt::Debug + Send + Sync {
    async fn resolve(&self, limit: Duration) -> Result<Vec<SocketAddr>, StorageError>;
}

/// Addresses of a program, which may change. The first is that of the last connection.
#[derive(Debug)]
pub(super) struct Address {
    known: Mutex<Vec<SocketAddr>>,
    resolver: Box<dyn Resolve>,
}

impl Address {
    /// Asks a resolver, within a limit.
    pub(super) async fn resolved(resolver: impl Resolve + 'static, limit: Duration) -> Result<Self, StorageError> {
        Ok(Self {
            known: Mutex::new(resolver.resolve(limit).await?),
            resolver: Box::new(resolver),
        })
    }

    pub(super) fn known(&self) -> Vec<SocketAddr> {
        self.known.lock().clone()
    }

    pub(super) fn get(&self) -> SocketAddr {
        self.known.lock()[0]
    }

    /// Connects to the first address that answers, after resolving again if none does.
    pub(super) async fn dial(&self, privileged: bool) -> io::Result<TcpStream> {
        let tried = self.known();
        let error = match self.dial_each(&tried, privileged).await {
            Err(error) => error,
            connected => return connected,
        };
        let is_tried = |address: &SocketAddr| tried.contains(address);
        let mut now = self.known();
        if now.iter().all(is_tried) {
            let found = self.resolver.resolve(AGAIN_LIMIT).await;
            let found = found.inspect_err(|error| tracing::debug!("{error}"));
            now = found.unwrap_or_default();
        }
        if now.iter().all(is_tried) {
            return Err(error);
        }
        self.dial_each(&now, privileged).await
    }

    async fn dial_each(&self, addresses: &[SocketAddr], privileged: bool) -> io::Result<TcpStream> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (i, &address) in addresses.iter().enumerate() {
            let dialled = match i + 1 == addresses.len() {
                true => dial(address, privileged).await,
                false => {
                    let limited = tokio::time::timeout(DIAL_LIMIT, dial(address, privileged)).await;
                    limited.unwrap_or_else(|late| Err(late.into()))
                }
            };
            match dialled {
                Ok(stream) => {
                    let mut known = addresses.to_vec();
                    known.swap(0, i);
                    *self.known.lock() = known;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}
