//! State shared by the users of a step: its tickets, its clock, and their samples.

use super::http;
use super::step::{Route, Step};
use crate::grpc::Connections;
use crate::pacer::Clock;
use crate::payload::Body;
use crate::reply::Limit;
use crate::tickets::{Ticket, Tickets};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tierlab_analysis::record::{Failure, Sample};
use tokio::sync::Semaphore;

/// Maximum concurrent handshakes: enough for a server's cores, and within its queue of new connections.
const HANDSHAKES: usize = 64;

/// State shared by the users of a step.
pub(super) struct Shared {
    pub(super) step: Step,
    /// Clients, one for each server.
    pub(super) clients: Vec<Client>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) clock: OnceLock<Clock>,
    pub(super) drain_end_us: u64,
    pub(super) ready: Semaphore,
    pub(super) delivered: Semaphore,
    /// Limit on concurrent handshakes before the clock starts.
    pub(super) handshakes: Semaphore,
    /// Samples of all users; locked once per user, at its end.
    pub(super) samples: Mutex<Vec<Sample>>,
    /// Examples of failures; locked by failed requests only.
    pub(super) examples: Mutex<BTreeMap<Failure, String>>,
}

/// Prepared [`Route`].
pub(super) enum Client {
    Http(Arc<http::Target>),
    Grpc(Arc<Connections>, Limit),
}

impl Client {
    fn new(route: &Route, limit: &Limit) -> Self {
        match route {
            Route::Http(route) => Self::Http(Arc::new(http::Target::new(route, limit.clone()))),
            Route::Grpc(connections) => Self::Grpc(Arc::clone(connections), limit.clone()),
        }
    }
}

impl Shared {
    pub(super) fn new(step: Step) -> Self {
        Self {
            clients: step
                .routes
                .iter()
                .map(|route| Client::new(route, &step.limit))
                .collect(),
            tickets: Arc::new(Tickets::new(Arc::clone(&step.schedule), step.users)),
            clock: OnceLock::new(),
            drain_end_us: step.schedule.window_end_us + u64::try_from(step.drain.as_micros()).unwrap_or(u64::MAX / 2),
            ready: Semaphore::new(0),
            delivered: Semaphore::new(0),
            handshakes: Semaphore::new(HANDSHAKES),
            samples: Mutex::new(Vec::new()),
            examples: Mutex::new(BTreeMap::new()),
            step,
        }
    }

    /// Opens the connections that users share.
    pub(super) async fn warm(&self) {
        for client in &self.clients {
            if let Client::Grpc(connections, _) = client {
                connections.warm().await;
            }
        }
    }

    /// The step's clock, once it has started.
    pub(super) fn clock(&self) -> Option<Clock> {
        self.clock.get().copied()
    }

    /// Returns the index of the server for a request.
    pub(super) fn server(&self, ticket: Ticket) -> usize {
        ticket.index % self.clients.len()
    }

    pub(super) fn body(&self, ticket: Ticket) -> &Body {
        &self.step.bodies[ticket.index % self.step.bodies.len()]
    }

    /// Stores the first example of each kind of failure.
    pub(super) fn note(&self, failure: Failure, says: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        examples.entry(failure).or_insert(says);
    }
}
