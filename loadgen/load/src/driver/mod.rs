//! One step against one server. In: a schedule, bodies and an address. Out: one sample per ticket, unsorted.
//!
//! goose brings the population of users, and its frame costs a request nothing: a user is one transaction that takes
//! tickets until there are none (`user`). Its throttle, its metrics, its clock and its client are not used: every
//! request's times are read here, on the step's clock, with the end at the last byte of the body. Knows nothing of
//! percentiles.

mod http;
mod stamp;
mod user;

pub use http::headers;

use crate::grpc::Connections;
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::pacer::{self, Clock, Observed};
use crate::payload::Body;
use crate::record::{Failure, Sample};
use crate::reply::{Expected, Limit};
use crate::schedule::Schedule;
use crate::tickets::{Ticket, Tickets};
use goose::config::GooseConfiguration;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use goose::{GooseAttack, GooseError, client::GooseClientBuilder};
use reqwest::Url;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use user::User;

/// Between the last user's start and the step's zero.
const LEAD: Duration = Duration::from_millis(10);
/// How long goose may take to start its users.
const START_LIMIT: Duration = Duration::from_secs(30);
/// After the drain limit, how long users may take to notice.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where requests are sent, and how.
    pub route: Route,
    /// When.
    pub schedule: Arc<Schedule>,
    /// What, sent in turn.
    pub bodies: Arc<Vec<Body>>,
    /// What every reply must look like.
    pub expected: Arc<Expected>,
    /// How long it may be.
    pub limit: Limit,
    /// The most in flight.
    pub users: usize,
    /// The client's limit for one request, from its actual send.
    pub timeout: Duration,
    /// How long replies may come in after the window.
    pub drain: Duration,
    /// Who is told of it while it runs.
    pub watch: Watch,
}

/// A way to the server.
#[derive(Debug, Clone)]
pub enum Route {
    /// HTTP/1.1: the model's infer route.
    Http(Url),
    /// gRPC.
    Grpc(Arc<Connections>),
}

/// What a step left behind.
#[derive(Debug)]
pub struct Finished {
    /// One per ticket of the schedule, warm-up included, in no order.
    pub samples: Vec<Sample>,
    /// What the pacer saw.
    pub observed: Observed,
    /// When the measured window began.
    pub window_began: SystemTime,
    /// Of failures whose kind does not say all, the first one in words.
    pub examples: BTreeMap<Failure, String>,
}

/// A step that could not be run; a server that does not answer is no such thing, its requests fail one by one.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// goose refused.
    #[error("goose could not run the step: {0}")]
    Goose(Box<GooseError>),
    /// No request can be sent there.
    #[error("{0}: no address of an infer route; give the server's as http://HOST:PORT")]
    Address(Url),
    /// The pacer's thread.
    #[error("the pacer's thread failed: {0}")]
    Pacer(std::io::Error),
    /// Users that did not come up, or did not end.
    #[error("{0} of {1} goose users {2}")]
    Users(usize, usize, &'static str),
}

impl Step {
    /// The part of a step that one of `of` load processes sends: every `of`-th request, from the `number`-th on, with as
    /// many of the users.
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

/// Runs a step; `None` when it was interrupted.
///
/// # Errors
/// See [`DriverError`].
pub async fn run(step: Step, interrupt: &Interrupt) -> Result<Option<Finished>, DriverError> {
    run_from(step, async { Ok(Instant::now() + LEAD) }, interrupt).await
}

/// Runs a step whose clock starts when `start`, asked once every user is up, says; `None` when it was interrupted.
///
/// # Errors
/// See [`DriverError`]; also that of `start`.
pub async fn run_from<E: From<DriverError>>(
    step: Step,
    start: impl Future<Output = Result<Instant, E>>,
    interrupt: &Interrupt,
) -> Result<Option<Finished>, E> {
    let users = step.users;
    let shared = Arc::new(Shared::new(step)?);
    // However this ends, pacer and users end with it.
    let _stop = Stop(&shared.tickets);
    // Dropped, not awaited, once every user has delivered: goose looks for finished users twice a second only.
    let attack = Box::pin(attack(&shared)?.execute());
    tokio::select! {
        finished = conduct(&shared, users, start) => finished.map(Some),
        ended = attack => Err(E::from(match ended {
            Err(error) => DriverError::Goose(Box::new(error)),
            Ok(_) => DriverError::Users(users - shared.delivered.available_permits(), users, "ended before the step"),
        })),
        () = interrupt.raised() => Ok(None),
    }
}

struct Stop<'a>(&'a Tickets);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Waits for the users, starts the pacer, and collects what the users deliver.
async fn conduct<E: From<DriverError>>(
    shared: &Arc<Shared>,
    users: usize,
    start: impl Future<Output = Result<Instant, E>>,
) -> Result<Finished, E> {
    wait_for_all(&shared.ready, users, START_LIMIT, "did not start").await?;
    let start = start.await?;
    let clock = *shared.clock.get_or_init(|| Clock::starting_at(start));
    let warmup = Duration::from_micros(shared.step.schedule.window_start_us);
    let window_began = SystemTime::now() + start.saturating_duration_since(Instant::now()) + warmup;
    shared.step.watch.starts(&shared.tickets, clock);
    let pacer = pacer::start(Arc::clone(&shared.tickets), clock).map_err(DriverError::Pacer)?;
    let limit = clock.at(shared.drain_end_us).saturating_duration_since(Instant::now()) + DELIVERY_LIMIT;
    wait_for_all(&shared.delivered, users, limit, "did not end").await?;
    let observed = pacer
        .join()
        .map_err(|_| DriverError::Pacer(std::io::Error::other("it panicked")))?;
    Ok(Finished {
        samples: std::mem::take(&mut shared.samples.lock().unwrap_or_else(PoisonError::into_inner)),
        observed,
        window_began,
        examples: std::mem::take(&mut shared.examples.lock().unwrap_or_else(PoisonError::into_inner)),
    })
}

async fn wait_for_all(
    arrived: &Semaphore,
    users: usize,
    limit: Duration,
    what: &'static str,
) -> Result<(), DriverError> {
    let all = u32::try_from(users).unwrap_or(u32::MAX);
    match tokio::time::timeout(limit, arrived.acquire_many(all)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(DriverError::Users(users - arrived.available_permits(), users, what)),
    }
}

/// What the users of a step share.
struct Shared {
    step: Step,
    way: Way,
    tickets: Arc<Tickets>,
    clock: OnceLock<Clock>,
    drain_end_us: u64,
    ready: Semaphore,
    delivered: Semaphore,
    /// Taken once per user, at its end.
    samples: Mutex<Vec<Sample>>,
    /// Taken by failed requests only.
    examples: Mutex<BTreeMap<Failure, String>>,
}

/// A [`Route`] made ready.
enum Way {
    Http(Arc<http::Target>),
    Grpc(Arc<Connections>, Limit),
}

impl Shared {
    fn new(step: Step) -> Result<Self, DriverError> {
        Ok(Self {
            way: match &step.route {
                Route::Http(url) => Way::Http(Arc::new(
                    http::Target::new(url, step.limit.clone()).ok_or_else(|| DriverError::Address(url.clone()))?,
                )),
                Route::Grpc(connections) => Way::Grpc(Arc::clone(connections), step.limit.clone()),
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
    fn clock(&self) -> Option<Clock> {
        self.clock.get().copied()
    }

    fn body(&self, ticket: Ticket) -> &Body {
        &self.step.bodies[ticket.index % self.step.bodies.len()]
    }

    /// Keeps the first of each kind.
    fn note(&self, failure: Failure, says: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        examples.entry(failure).or_insert(says);
    }

    /// A goose user's whole life.
    async fn serve(self: Arc<Self>) {
        let user = Arc::new(User::new(Arc::clone(&self)));
        self.ready.add_permits(1);
        let mut samples = user.serve().await;
        self.samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&mut samples);
        self.delivered.add_permits(1);
    }
}

impl Route {
    /// The server's address, for goose, which wants one.
    fn host(&self) -> String {
        match self {
            Self::Http(url) => url.origin().ascii_serialization(),
            Self::Grpc(connections) => format!("http://{}", connections.authority()),
        }
    }
}

fn attack(shared: &Arc<Shared>) -> Result<GooseAttack, DriverError> {
    let user = {
        let shared = Arc::clone(shared);
        let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
            let shared = Arc::clone(&shared);
            // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
            user.config.iterations = Some(1);
            Box::pin(async move {
                shared.serve().await;
                TransactionResult::Ok(())
            })
        });
        Transaction::new(function)
    };
    GooseAttack::initialize_with_config(configuration(&shared.step))
        // Nobody sends with it; but else goose makes one for each user.
        .and_then(|attack| attack.set_client_builder_without_cookies(GooseClientBuilder::new().without_cookies()))
        .map(|attack| attack.register_scenario(Scenario::new("tickets").register_transaction(user)))
        .map_err(|error| DriverError::Goose(Box::new(error)))
}

/// All users at once, and not a line of output.
fn configuration(step: &Step) -> GooseConfiguration {
    // Field by field: some are private, so that no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(step.route.host());
    configuration.users = Some(step.users);
    configuration.increase_rate = Some("1000000".into());
    configuration.quiet = 1;
    configuration.no_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    configuration
}

#[cfg(test)]
mod tests;
