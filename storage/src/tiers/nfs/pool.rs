//! A pool of connections to one server: at most so many, opened when needed, replaced when they break.
//!
//! In: calls, and whether they may be repeated. Out: replies and what they cost. A call has one limit for everything:
//! waiting, connecting, repeats. Knows nothing of NFS.

use super::connection::{Call, CallError, Connection, Reply};
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use bytes::Bytes;
use nfs3_types::rpc::opaque_auth;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::Semaphore;

/// How often a call is made at most.
const MAX_ATTEMPTS: u32 = 4;
/// The wait before the first repeat; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

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
    slots: Semaphore,
    /// Connections between calls; never more than there are slots.
    idle: Mutex<Vec<Connection>>,
}

/// How one attempt ended.
enum Attempt {
    Done(Reply),
    /// The server cannot have seen the call.
    NotSent(CallError),
    Failed(CallError),
}

impl Pool {
    pub(super) fn new(
        address: SocketAddr,
        privileged: bool,
        credential: opaque_auth<'static>,
        connections: u32,
        limit: Duration,
    ) -> Self {
        let slots = usize::try_from(connections)
            .unwrap_or(Semaphore::MAX_PERMITS)
            .clamp(1, Semaphore::MAX_PERMITS);
        Self {
            address,
            privileged,
            credential,
            limit,
            slots: Semaphore::new(slots),
            idle: Mutex::default(),
        }
    }

    /// Makes a call; `about` is what an error names. What it cost is added to `cost`.
    pub(super) async fn call(
        &self,
        about: &str,
        call: &Call,
        repeat: Repeat,
        cost: &mut ReadCost,
    ) -> Result<Bytes, StorageError> {
        match tokio::time::timeout(self.limit, self.attempts(call, repeat, cost)).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(e)) => {
                let kind = match e {
                    CallError::Denied(_) => ErrorKind::Denied,
                    CallError::Unable(_) => ErrorKind::Unsupported,
                    CallError::Broken(_) | CallError::Protocol(_) => ErrorKind::Unavailable,
                };
                Err(StorageError::new(
                    kind,
                    about,
                    format!("NFS server {}: {e}", self.address),
                ))
            }
            Err(_) => {
                let detail = format!(
                    "NFS server {} did not answer within {} ms",
                    self.address,
                    self.limit.as_millis()
                );
                Err(StorageError::new(ErrorKind::Timeout, about, detail))
            }
        }
    }

    async fn attempts(&self, call: &Call, repeat: Repeat, cost: &mut ReadCost) -> Result<Bytes, CallError> {
        let queued = Instant::now();
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let mut of_call = ReadCost {
            via: ViaSet::of(Via::Nfs),
            queue: queued.elapsed(),
            ..ReadCost::default()
        };
        let mut backoff = FIRST_BACKOFF;
        let result = loop {
            of_call.requests += 1;
            let (error, again) = match self.attempt(call, &mut of_call).await {
                Attempt::Done(reply) => {
                    of_call.wire_bytes += reply.wire_bytes;
                    break Ok(reply.body);
                }
                Attempt::NotSent(e) => (e, true),
                Attempt::Failed(e @ CallError::Broken(_)) => (e, repeat == Repeat::Safe),
                Attempt::Failed(e) => (e, false),
            };
            if !again || of_call.requests == MAX_ATTEMPTS {
                break Err(error);
            }
            of_call.retries += 1;
            tokio::time::sleep(backoff).await;
            backoff *= 2;
        };
        cost.merge(&of_call);
        result
    }

    async fn attempt(&self, call: &Call, cost: &mut ReadCost) -> Attempt {
        let began = Instant::now();
        let connection = match self.take_idle() {
            Some(connection) => connection,
            None => match Connection::open(self.address, self.privileged).await {
                Ok(connection) => connection,
                Err(e) => return Attempt::NotSent(e.into()),
            },
        };
        let sent = Instant::now();
        cost.queue += sent - began;
        let (connection, result) = connection.call(call, &self.credential).await;
        cost.device += sent.elapsed();
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(connection);
        result.map_or_else(Attempt::Failed, Attempt::Done)
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }
}
