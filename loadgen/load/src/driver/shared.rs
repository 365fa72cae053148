//! What the users of a step share: its tickets, its clock, and where they leave their samples.

use super::http;
use super::step::{DriverError, Route, Step};
use crate::grpc::Connections;
use crate::pacer::Clock;
use crate::payload::Body;
use crate::reply::Limit;
use crate::tickets::{Ticket, Tickets};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tierlab_analysis::record::{Failure, Sample};
use tokio::sync::Semaphore;

/// What the users of a step share.
pub(super) struct Shared {
    pub(super) step: Step,
    pub(super) client: Client,
    pub(super) tickets: Arc<Tickets>,
    pub(super) clock: OnceLock<Clock>,
    pub(super) drain_end_us: u64,
    pub(super) ready: Semaphore,
    pub(super) delivered: Semaphore,
    /// Taken once per user, at its end.
    pub(super) samples: Mutex<Vec<Sample>>,
    /// Taken by failed requests only.
    pub(super) examples: Mutex<BTreeMap<Failure, String>>,
}

/// A [`Route`] made ready.
pub(super) enum Client {
    Http(Arc<http::Target>),
    Grpc(Arc<Connections>, Limit),
}

impl Shared {
    pub(super) fn new(step: Step) -> Result<Self, DriverError> {
        Ok(Self {
            client: match &step.route {
                Route::Http(url) => Client::Http(Arc::new(
                    http::Target::new(url, step.limit.clone()).ok_or_else(|| DriverError::Address(url.clone()))?,
                )),
                Route::Grpc(connections) => Client::Grpc(Arc::clone(connections), step.limit.clone()),
            },
            tickets: Arc::new(Tickets::new(Arc::clone(&step.schedule), step.users)),
            clock: OnceLock::new(),
            drain_end_us: step.schedule.window_end_us + u64::try_from(step.drain.as_micros()).unwrap_or(u64::MAX / 2),
            ready: Semaphore::new(0),
            delivered: Semaphore::new(0),
            samples: Mutex::new(Vec::new()),
            examples: Mutex::new(BTreeMap::new()),
            step,
        })
    }

    /// The step's clock, once it has started.
    pub(super) fn clock(&self) -> Option<Clock> {
        self.clock.get().copied()
    }

    pub(super) fn body(&self, ticket: Ticket) -> &Body {
        &self.step.bodies[ticket.index % self.step.bodies.len()]
    }

    /// Keeps the first of each kind.
    pub(super) fn note(&self, failure: Failure, says: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        examples.entry(failure).or_insert(says);
    }
}
