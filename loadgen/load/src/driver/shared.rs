//! State shared by the users of a step: its tickets, its clients, and their samples.

use super::http;
use super::open_loop::{Examples, OpenLoop};
use super::step::{Route, Step};
use crate::grpc::Connections;
use crate::payload::Body;
use crate::reply::Limit;
use crate::tickets::Ticket;
use std::sync::{Arc, Mutex};
use tierlab_analysis::record::Sample;
use tokio::sync::Semaphore;

/// Maximum concurrent handshakes: enough for a server's cores, and within its queue of new connections.
const HANDSHAKES: usize = 64;

/// State shared by the users of a step.
pub(super) struct Shared {
    pub(super) step: Step,
    /// Clients, one for each server.
    pub(super) clients: Vec<Client>,
    pub(super) open_loop: OpenLoop,
    /// Limit on concurrent handshakes before the clock starts.
    pub(super) handshakes: Semaphore,
    /// Samples of all users; locked once per user, at its end.
    pub(super) samples: Mutex<Vec<Sample>>,
    pub(super) examples: Examples,
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
            open_loop: OpenLoop::new(&step.schedule, step.users, step.drain, &step.watch),
            handshakes: Semaphore::new(HANDSHAKES),
            samples: Mutex::new(Vec::new()),
            examples: Examples::default(),
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

    /// Returns the index of the server for a request.
    pub(super) fn server(&self, ticket: Ticket) -> usize {
        ticket.index % self.clients.len()
    }

    pub(super) fn body(&self, ticket: Ticket) -> &Body {
        &self.step.bodies[ticket.index % self.step.bodies.len()]
    }
}
