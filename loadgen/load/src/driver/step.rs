//! Parameters and results of a step, and the errors that prevent it.

use super::http::HttpRoute;
use crate::grpc::Connections;
use crate::live::Watch;
use crate::pacer::Observed;
use crate::payload::Body;
use crate::reply::{Expected, Limit};
use crate::schedule::Schedule;
use goose::GooseError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::{Failure, Sample};

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Destinations of requests; several servers take turns.
    pub routes: Vec<Route>,
    /// Due times of the requests.
    pub schedule: Arc<Schedule>,
    /// Bodies, sent in turn.
    pub bodies: Arc<Vec<Body>>,
    /// Expectation for every reply.
    pub expected: Arc<Expected>,
    /// Maximum length of a reply.
    pub limit: Limit,
    /// Maximum requests in flight.
    pub users: usize,
    /// Time limit of the client for one request, from its actual send.
    pub timeout: Duration,
    /// Time that replies may take after the window.
    pub drain: Duration,
    /// Live view of the step.
    pub watch: Watch,
}

/// A way to the server.
#[derive(Debug, Clone)]
pub enum Route {
    /// Requests over HTTP/1.1.
    Http(HttpRoute),
    /// Requests over gRPC.
    Grpc(Arc<Connections>),
}

/// Results of a step.
#[derive(Debug)]
pub struct Finished {
    /// Samples in no order, one per ticket of the schedule, warm-up included.
    pub samples: Vec<Sample>,
    /// The pacer's observations.
    pub observed: Observed,
    /// Start of the measured window.
    pub window_began: SystemTime,
    /// First example of each kind of failure that needs details.
    pub examples: BTreeMap<Failure, String>,
}

/// Error that prevents a step. If the server does not answer, its requests fail one by one instead.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Error of goose.
    #[error("goose could not run the step: {0}")]
    Goose(Box<GooseError>),
    /// goose's client cannot carry the requests.
    #[error("{0}")]
    Carried(String),
    /// Failed creation of a client for goose's users.
    #[error("the users' HTTP client could not be made: {0}")]
    Client(String),
    /// Failed start of the pacer's thread.
    #[error("the pacer's thread failed: {0}")]
    Pacer(std::io::Error),
    /// A step without a server.
    #[error("there is no server to send to")]
    NoServer,
    /// Users that did not start, or did not end.
    #[error("{0} of {1} goose users {2}")]
    Users(usize, usize, &'static str),
}

impl Step {
    /// Returns the share of one of `of` load processes: every `of`-th request from the `number`-th on, with as many of
    /// the users.
    #[must_use]
    pub fn share(self, number: usize, of: usize) -> Self {
        let requests = self.schedule.due_us.len();
        let bodies = (number..requests)
            .step_by(of)
            .map(|i| self.bodies[i % self.bodies.len()].clone());
        Self {
            bodies: Arc::new(bodies.collect()),
            schedule: Arc::new(self.schedule.share(number, of)),
            users: self.users.div_ceil(of),
            ..self
        }
    }
}

impl Route {
    /// Returns the server's address, which goose requires.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Http(route) => route.endpoint().address().url(),
            Self::Grpc(connections) => connections.endpoint().address().url(),
        }
    }
}
