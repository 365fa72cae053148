//! Journeys: several requests in a row, each made of what the ones before it brought, begun at due times (open loop).
//!
//! In: a schedule, steps and an address. Out: a sample for each journey and each of its steps. goose carries it: a journey is a
//! [`Scenario`](goose::goose::Scenario), a step one of its transactions, and goose's client sends. The times are read here: goose's
//! scenario clock begins when a user is free, not when a journey is due, and its request clock stops at the headers.
//! The first step counts from the due time, each later one from the end of the one before. Knows nothing of percentiles.
//!
//! - [`template`], [`inputs`], [`value`]: requests made of values, and values taken from replies
//! - `step`: one request and what it comes to; `user`: a goose user, which takes tickets and walks the steps

pub mod inputs;
mod step;
pub mod template;
mod user;
pub mod value;

pub use step::{Check, JourneyStep, Take};

use crate::attack::{Attack, attack, client};
use crate::driver::DriverError;
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::pacer::{self, Clock, Observed};
use crate::schedule::Schedule;
use crate::tickets::Tickets;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction};
use reqwest::{Client, Url};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::{Failure, Outcome, Sample};
use tokio::sync::Semaphore;

/// Between the last user's start and the step's zero.
const LEAD: Duration = Duration::from_millis(10);
/// How long goose may take to start its users.
const START_LIMIT: Duration = Duration::from_secs(30);
/// After the drain limit, how long users may take to notice.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// One measured step of a run: journeys at one rate.
#[derive(Debug, Clone)]
pub struct Journey {
    /// The server's address.
    pub host: Url,
    /// When journeys begin.
    pub schedule: Arc<Schedule>,
    /// The entity of each, in turn; empty where none is asked for.
    pub entities: Arc<Vec<i64>>,
    /// What each does; at least one step.
    pub steps: Arc<Vec<JourneyStep>>,
    /// How many values a journey has: the entity first, then those that steps take.
    pub values: usize,
    /// The most journeys under way.
    pub users: usize,
    /// The client's limit for one request, from its actual send.
    pub timeout: Duration,
    /// How long replies may come in after the window.
    pub drain: Duration,
    /// Who is told of it while it runs.
    pub watch: Watch,
}

/// One request of a journey.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSample {
    /// Its times: due at the journey's due time for the first, at the end of the step before for the others.
    pub sample: Sample,
    /// When its journey was due.
    pub journey_due_us: u64,
}

/// One journey, from its due time to the end of its last step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    /// Its times and how it ended: as its last step, or the one that failed.
    pub sample: Sample,
    /// The step that failed it.
    pub failed_at: Option<usize>,
    /// goose's own times of its requests, summed, in microseconds.
    pub goose_us: u64,
}

/// What journeys left behind.
#[derive(Debug)]
pub struct Travelled {
    /// One for each ticket, warm-up included.
    pub journeys: Vec<Whole>,
    /// By step, one for each journey that came to it.
    pub steps: Vec<Vec<StepSample>>,
    /// What the pacer saw, of journeys.
    pub observed: Observed,
    /// When the measured window began.
    pub window_began: SystemTime,
    /// Of failures, by step, the first one in words.
    pub examples: Vec<BTreeMap<Failure, String>>,
}

/// What the users of a step share.
struct Shared {
    step: Journey,
    client: Client,
    tickets: Arc<Tickets>,
    clock: OnceLock<Clock>,
    drain_end_us: u64,
    ready: Semaphore,
    delivered: Semaphore,
    /// Taken once per user, at its end.
    done: Mutex<Done>,
    /// Taken by failed requests only.
    examples: Mutex<Vec<BTreeMap<Failure, String>>>,
}

/// What users leave.
#[derive(Debug, Clone, Default)]
struct Done {
    journeys: Vec<Whole>,
    steps: Vec<Vec<StepSample>>,
}

/// Runs journeys; `None` when it was interrupted.
///
/// # Errors
/// See [`DriverError`]; a server that does not answer is none, its requests fail one by one.
pub async fn run(step: Journey, interrupt: &Interrupt) -> Result<Option<Travelled>, DriverError> {
    if step.host.scheme() != "http" {
        return Err(DriverError::Carried(format!(
            "goose's client, which runs journeys, speaks plain HTTP here and not `{}`: give the server's http:// address, or \
             measure its requests one by one (`[[load]]` with `rates`)",
            step.host.scheme()
        )));
    }
    let shared = Arc::new(Shared::new(step)?);
    // However this ends, pacer and users end with it.
    let _stop = Stop(&shared.tickets);
    // Dropped, not awaited, once every user has delivered: goose looks for finished users twice a second only.
    let attack = Box::pin(shared.attack()?.execute());
    let users = shared.step.users;
    tokio::select! {
        travelled = conduct(&shared) => travelled.map(Some),
        ended = attack => Err(match ended {
            Err(error) => DriverError::Goose(Box::new(error)),
            Ok(_) => DriverError::Users(users - shared.delivered.available_permits(), users, "ended before the step"),
        }),
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
async fn conduct(shared: &Shared) -> Result<Travelled, DriverError> {
    let users = shared.step.users;
    wait_for_all(&shared.ready, users, START_LIMIT, "did not start").await?;
    let start = Instant::now() + LEAD;
    let clock = *shared.clock.get_or_init(|| Clock::starting_at(start));
    let warmup = Duration::from_micros(shared.step.schedule.window_start_us);
    let window_began = SystemTime::now() + LEAD + warmup;
    shared.step.watch.starts(&shared.tickets, clock);
    let pacer = pacer::start(Arc::clone(&shared.tickets), clock).map_err(DriverError::Pacer)?;
    let limit = clock.at(shared.drain_end_us).saturating_duration_since(Instant::now()) + DELIVERY_LIMIT;
    wait_for_all(&shared.delivered, users, limit, "did not end").await?;
    let observed = pacer
        .join()
        .map_err(|_| DriverError::Pacer(std::io::Error::other("it panicked")))?;
    let done = std::mem::take(&mut *shared.done.lock().unwrap_or_else(PoisonError::into_inner));
    let examples = std::mem::take(&mut *shared.examples.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Travelled {
        journeys: done.journeys,
        steps: done.steps,
        observed,
        window_began,
        examples,
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

impl Shared {
    fn new(step: Journey) -> Result<Self, DriverError> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4);
        Ok(Self {
            client: client(step.timeout)?,
            tickets: Arc::new(Tickets::new(Arc::clone(&step.schedule), step.users)),
            clock: OnceLock::new(),
            drain_end_us: step.schedule.window_end_us + micros(step.drain),
            ready: Semaphore::new(0),
            delivered: Semaphore::new(0),
            done: Mutex::new(Done {
                journeys: Vec::with_capacity(step.schedule.due_us.len()),
                steps: vec![Vec::with_capacity(step.schedule.due_us.len()); step.steps.len()],
            }),
            examples: Mutex::new(vec![BTreeMap::new(); step.steps.len()]),
            step,
        })
    }

    fn attack(self: &Arc<Self>) -> Result<goose::GooseAttack, DriverError> {
        let mut scenario = Scenario::new("journey");
        for (index, step) in self.step.steps.iter().enumerate() {
            let shared = Arc::clone(self);
            let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
                let shared = Arc::clone(&shared);
                Box::pin(async move { user::walk(user, &shared, index).await })
            });
            let transaction = Transaction::new(function)
                .set_name(&step.name)
                // In the plan's order, one after the other.
                .set_sequence(index + 1);
            scenario = scenario.register_transaction(transaction);
        }
        attack(Attack {
            host: &self.step.host,
            users: self.step.users,
            scenario,
            metrics: false,
        })
    }

    /// Keeps the first of each kind at each step.
    fn note(&self, step: usize, failure: Failure, says: String) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        examples[step].entry(failure).or_insert(says);
    }
}

impl Whole {
    /// How it failed, and at which step; `None` where it did not.
    #[must_use]
    pub const fn failure(&self) -> Option<(usize, Failure)> {
        match (self.failed_at, self.sample.outcome) {
            (Some(step), Outcome::Failed(failure)) => Some((step, failure)),
            _ => None,
        }
    }
}
