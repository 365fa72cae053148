//! One step against one server. In: a schedule, bodies and an address. Out: one sample per ticket, unsorted.
//!
//! A user is a task that takes tickets until the last (`user`). Every request's times are read here, on the step's
//! clock, with the end at the last byte of the body. Knows nothing of percentiles.

use crate::grpc::{Connections, WARM_LIMIT};
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::lock;
use crate::pacer::Observed;
use crate::payload::Body;
use crate::reply::{Expected, Limit};
use crate::schedule::Schedule;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::{Failure, Sample, StreamSample};
use tokio::task::JoinSet;
use user::{Shared, User};

mod http;
mod open_loop;
mod user;
mod wire;

pub use http::HttpRoute;

pub(crate) use http::HttpReply;
pub(crate) use open_loop::{Examples, LEAD, OpenLoop, Users};
pub(crate) use user::{Reply, check_reply};

/// Runs a step; `None` if it was interrupted.
///
/// # Errors
/// See [`DriverError`].
pub async fn run(step: Step, interrupt: &Interrupt) -> Result<Option<Finished>, DriverError> {
    run_from(step, async { Ok(Instant::now() + LEAD) }, interrupt).await
}

/// Runs a step whose clock starts at the time that `start` returns once every user is ready; `None` if it was
/// interrupted.
///
/// # Errors
/// See [`DriverError`]; also those of `start`.
pub async fn run_from<E: From<DriverError>>(
    step: Step,
    start: impl Future<Output = Result<Instant, E>>,
    interrupt: &Interrupt,
) -> Result<Option<Finished>, E> {
    if step.routes.is_empty() {
        return Err(DriverError::NoServer.into());
    }
    let shared = Arc::new(Shared::new(step));
    let users = async {
        let count = shared.open_loop.users.count;
        let mut users: JoinSet<()> = (0..count).map(|_| serve(Arc::clone(&shared))).collect();
        // Users that panicked have not delivered, which ends the step.
        while users.join_next().await.is_some() {}
        Ok(())
    };
    let ran = shared.open_loop.run(users, start, interrupt).await?;
    Ok(ran.map(|(observed, window_began)| Finished {
        samples: std::mem::take(&mut lock(&shared.samples)),
        streams: std::mem::take(&mut lock(&shared.streams)),
        recorded: std::mem::take(&mut lock(&shared.recorded)),
        observed,
        window_began,
        examples: shared.examples.take(),
    }))
}

/// Runs one user of an open loop.
async fn serve(shared: Arc<Shared>) {
    let user = Arc::new(User::new(Arc::clone(&shared)));
    // Connections that are not open by then are opened by their requests.
    let _ = tokio::time::timeout(WARM_LIMIT, user.warm()).await;
    shared.open_loop.users.ready.add_permits(1);
    let mut samples = user.serve().await;
    lock(&shared.samples).append(&mut samples);
    shared.open_loop.users.delivered.add_permits(1);
}

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
    /// Settings of connections and records.
    pub sending: Sending,
    /// Time limit of the client for one request, from its actual send.
    pub timeout: Duration,
    /// Time that replies may take after the window.
    pub drain: Duration,
    /// Live view of the step.
    pub watch: Watch,
}

/// Settings of a step's connections, and of the record of its requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sending {
    /// Connections of users.
    pub connections: ConnectionUse,
    /// Bodies that are compressed, over HTTP.
    pub compress: Option<Compress>,
    /// If true, requests over HTTP go over HTTP/2.
    pub http2: bool,
    /// If true, every request is kept with its size, status and times.
    pub keep_requests: bool,
}

/// `connections`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionUse {
    /// Kept by each user from request to request.
    #[default]
    Kept,
    /// Opened for each request.
    New,
    /// Fixed number for all users, opened before the step.
    #[serde(untagged)]
    Fixed(u32),
}

impl ConnectionUse {
    /// Fixed number of connections.
    pub const fn fixed(self) -> Option<usize> {
        match self {
            Self::Fixed(count) => Some(count as usize),
            Self::Kept | Self::New => None,
        }
    }
}

/// `compress`: bodies that are sent with gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Bodies of requests.
    Requests,
    /// Bodies of replies, if the server can.
    Replies,
    /// Bodies of requests and replies.
    Both,
}

impl Compress {
    /// True if bodies of requests are compressed.
    pub const fn requests(self) -> bool {
        !matches!(self, Self::Replies)
    }

    /// True if compressed replies are requested.
    pub const fn replies(self) -> bool {
        !matches!(self, Self::Requests)
    }
}

/// Request on record.
#[derive(Debug, Clone, Copy)]
pub struct KeptRequest {
    /// Index in the schedule.
    pub index: usize,
    /// Times and outcome.
    pub sample: Sample,
    /// First byte of the reply over HTTP/1.1, in microseconds since the step's start.
    pub first_byte_us: Option<u64>,
    /// HTTP status, if there was a reply.
    pub status: Option<u16>,
    /// Bytes of the reply's body, if there was a reply.
    pub reply_bytes: Option<usize>,
}

/// Transport to the server.
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
    /// Good replies that streamed, in no order, warm-up included.
    pub streams: Vec<StreamSample>,
    /// Every request in no order, if the step keeps them.
    pub recorded: Vec<KeptRequest>,
    /// The pacer's observations.
    pub observed: Observed,
    /// Start of the measured window.
    pub window_began: SystemTime,
    /// First example of each kind of failure that needs details.
    pub examples: BTreeMap<Failure, String>,
}

impl Finished {
    /// Creates the results of requests without streams, records and examples.
    pub const fn of(samples: Vec<Sample>, observed: Observed, window_began: SystemTime) -> Self {
        Self {
            samples,
            streams: Vec::new(),
            recorded: Vec::new(),
            observed,
            window_began,
            examples: BTreeMap::new(),
        }
    }
}

/// Error that prevents a step. If the server does not answer, its requests fail one by one instead.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Error of goose.
    #[error("goose could not run the step: {0}")]
    Goose(String),
    /// Closed loop or journey in a build without goose.
    #[error("closed loops and journeys need goose, which this build leaves out: run `make build`")]
    NoGoose,
    /// goose's client cannot carry the requests.
    #[error("{0}")]
    UnsupportedByGoose(String),
    /// Failed creation of a client for goose's users.
    #[error("cannot create the users' HTTP client: {0}")]
    Client(String),
    /// Failed start of the pacer's thread.
    #[error("the pacer's thread failed: {0}")]
    Pacer(std::io::Error),
    /// A step without a server.
    #[error("no server to send to")]
    NoServer,
    /// Users that did not start, or did not end.
    #[error("{0} of {1} users {2}")]
    Users(usize, usize, &'static str),
}

impl Step {
    /// Returns the share of load process `number` of `of`: every `of`-th request, and an equal part of the users.
    #[must_use]
    pub fn share(self, number: usize, of: usize) -> Self {
        let requests = self.schedule.due_us.len();
        let own = (number..requests).step_by(of);
        let bodies = own.map(|i| self.bodies[i % self.bodies.len()].clone());
        Self {
            bodies: Arc::new(bodies.collect()),
            schedule: Arc::new(self.schedule.share(number, of)),
            users: self.users.div_ceil(of),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
