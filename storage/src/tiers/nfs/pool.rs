//! A pool of connections to one server: opened when needed, replaced when they break, each with many calls under way.
//!
//! In: calls, and whether they may be repeated. Out: replies and what they cost. A call goes to the connection with the
//! fewest under way, and has one limit for everything: waiting, connecting, repeats. Knows nothing of NFS.

use super::connection::{Claim, Connection, Landing, Outgoing, Reply};
use super::dial::dial;
use super::rpc::{Call, CallError};
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use bytes::BytesMut;
use nfs3_types::rpc::opaque_auth;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls under way per connection at most; more wait here.
const WINDOW: usize = 128;
/// The wait before the first repeat; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// Whether a call that may or may not have run can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Running twice is the same as running once.
    Safe,
    /// Only while it is certain that it has not run.
    Never,
}

/// The connections to one address.
#[derive(Debug)]
pub(super) struct Pool {
    address: SocketAddr,
    privileged: bool,
    credential: opaque_auth<'static>,
    limit: Duration,
    window: Arc<Semaphore>,
    slots: Vec<Slot>,
}

/// A place for one connection.
#[derive(Debug, Default)]
struct Slot {
    /// Calls that have chosen it.
    load: Arc<AtomicUsize>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while a connection is opened.
    opening: tokio::sync::Mutex<()>,
}

/// How one attempt ended.
enum Attempt {
    Done(Reply),
    /// The server cannot have seen the call.
    NotSent(CallError),
    Failed(CallError),
}

impl Slot {
    // Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Option<Arc<Connection>> {
        let mut connection = self.lock();
        if connection.as_ref().is_some_and(|connection| connection.is_broken()) {
            *connection = None;
        }
        connection.clone()
    }
}

impl Pool {
    pub(super) fn new(
        address: SocketAddr,
        privileged: bool,
        credential: opaque_auth<'static>,
        connections: usize,
        limit: Duration,
    ) -> Self {
        let connections = connections.max(1);
        Self {
            address,
            privileged,
            credential,
            limit,
            window: Arc::new(Semaphore::new(
                connections.saturating_mul(WINDOW).min(Semaphore::MAX_PERMITS),
            )),
            slots: std::iter::repeat_with(Slot::default).take(connections).collect(),
        }
    }

    /// How long one call may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Makes a call; `about` is what an error names. What it cost is added to `cost`.
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
        let (address, limit) = (self.address, self.limit.as_millis());
        let (kind, detail) = match error {
            CallError::Denied(_) => (ErrorKind::Denied, format!("NFS server {address}: {error}")),
            CallError::Unable(_) => (ErrorKind::Unsupported, format!("NFS server {address}: {error}")),
            CallError::Late => {
                let detail = format!("NFS server {address} did not answer within {limit} ms");
                (ErrorKind::Timeout, detail)
            }
            CallError::Broken(_) | CallError::Protocol(_) => {
                (ErrorKind::Unavailable, format!("NFS server {address}: {error}"))
            }
        };
        Err(StorageError::new(kind, about, detail))
    }

    async fn attempts(
        &self,
        call: &Call,
        landing: Option<Landing>,
        repeat: Repeat,
        cost: &mut ReadCost,
    ) -> Result<Reply, CallError> {
        let outgoing = Outgoing::new(call, &self.credential, Instant::now() + self.limit);
        let mut of_call = ReadCost {
            via: ViaSet::of(Via::Nfs),
            ..ReadCost::default()
        };
        let again = landing
            .as_ref()
            .map(|landing| (landing.find, landing.buffer.capacity()));
        let mut landing = landing;
        let mut backoff = FIRST_BACKOFF;
        let result = loop {
            of_call.requests += 1;
            let (error, repeatable) = match self.attempt(&outgoing, landing.take(), &mut of_call).await {
                Attempt::Done(reply) => {
                    of_call.wire_bytes += reply.wire_bytes;
                    break Ok(reply);
                }
                Attempt::NotSent(error) => (error, true),
                Attempt::Failed(error @ CallError::Broken(_)) => (error, repeat == Repeat::Safe),
                Attempt::Failed(error) => (error, false),
            };
            let repeatable = repeatable && !matches!(error, CallError::Late);
            if !repeatable || Instant::now() + backoff >= outgoing.deadline {
                break Err(error);
            }
            // The buffer went with the connection.
            landing = again.map(|(find, capacity)| Landing {
                find,
                buffer: BytesMut::with_capacity(capacity),
            });
            of_call.retries += 1;
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        };
        cost.merge(&of_call);
        result
    }

    async fn attempt(&self, outgoing: &Outgoing<'_>, landing: Option<Landing>, cost: &mut ReadCost) -> Attempt {
        let began = Instant::now();
        let Some(place) = self.place(outgoing.deadline).await else {
            return Attempt::NotSent(CallError::Late);
        };
        let load = |slot: &&Slot| slot.load.load(Ordering::Relaxed);
        let Some(slot) = self.slots.iter().min_by_key(load) else {
            return Attempt::NotSent(CallError::Broken("no connections are allowed".to_owned()));
        };
        let claim = Claim::new(Arc::clone(&slot.load), place);
        let connection = match self.connection(slot, outgoing.deadline).await {
            Ok(connection) => connection,
            Err(error) => return Attempt::NotSent(error),
        };
        let sent = Instant::now();
        cost.queue += sent - began;
        let answer = match connection.submit(outgoing, landing, claim) {
            Ok(answer) => answer.await,
            Err(error) => return Attempt::NotSent(error),
        };
        cost.device += sent.elapsed();
        // Without an answer the connection ended while the reply was arriving.
        let answer =
            answer.unwrap_or_else(|_| Err(CallError::Broken("the connection broke within a reply".to_owned())));
        answer.map_or_else(Attempt::Failed, Attempt::Done)
    }

    /// A place among the calls under way, unless the deadline comes first.
    async fn place(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.window).try_acquire_owned() {
            return Some(place);
        }
        let wait = Arc::clone(&self.window).acquire_owned();
        // The semaphore is never closed.
        tokio::time::timeout_at(deadline.into(), wait).await.ok()?.ok()
    }

    /// The slot's connection, opened where there is none.
    async fn connection(&self, slot: &Slot, deadline: Instant) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        let open = async {
            let _opening = slot.opening.lock().await;
            if let Some(connection) = slot.usable() {
                return Ok(connection);
            }
            let stream = dial(self.address, self.privileged).await?;
            let connection = Arc::new(Connection::start(stream, self.limit));
            *slot.lock() = Some(Arc::clone(&connection));
            Ok(connection)
        };
        match tokio::time::timeout_at(deadline.into(), open).await {
            Ok(opened) => opened,
            Err(_) => Err(CallError::Late),
        }
    }
}
