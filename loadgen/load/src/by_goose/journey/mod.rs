//! Journeys: several requests in a row, each built from earlier replies, begun at due times (open loop).
//!
//! In: a schedule, steps and an address. Out: a sample for each journey and each of its steps. goose runs it: a journey
//! is a `Scenario`, a step one of its transactions, and goose's client sends. That client does not speak gRPC, so a
//! step over gRPC is sent inside its transaction by the connections of [`crate::grpc`]. The times are read here:
//! goose's scenario clock begins when a user is free, not when a journey is due, and its request clock stops at the
//! headers. The first step counts from the due time, each later one from the end of the one before. Knows nothing of
//! percentiles.
//!
//! - [`template`], [`inputs`], [`value`]: requests built from values, and values extracted from replies
//! - `step`: one request and its result; `grpc_call`: the same over gRPC; `shape`: shape of a tensor; `shared`: state
//!   shared by users; `user`: a goose user, which takes tickets and runs the steps

mod grpc_call;
pub mod inputs;
mod shape;
mod shared;
mod step;
pub mod template;
mod user;
pub mod value;

pub use grpc_call::GrpcCall;
pub use shared::{Journey, StepSample, Whole};
pub use step::{Check, JourneyStep, StepCarrier, Take};

use crate::by_goose::attack::{Attack, attack};
use crate::driver::{DriverError, beside, wait_for_all};
use crate::interrupt::Interrupt;
use crate::pacer::{self, Clock, Observed};
use crate::tickets::Tickets;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction};
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::Failure;

/// Time between the last user's start and the step's zero.
const LEAD: Duration = Duration::from_millis(10);
/// Time limit for goose to start its users.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for users to finish after the drain limit.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// Result of journeys.
#[derive(Debug)]
pub struct Travelled {
    /// One entry per ticket, warm-up included.
    pub journeys: Vec<Whole>,
    /// Samples by step, one for each journey that reached it.
    pub steps: Vec<Vec<StepSample>>,
    /// The pacer's observations of journeys.
    pub observed: Observed,
    /// Start of the measured window.
    pub window_began: SystemTime,
    /// First example of each kind of failure, by step.
    pub examples: Vec<BTreeMap<Failure, String>>,
}

/// Runs journeys; `None` if they were interrupted.
///
/// # Errors
/// See [`DriverError`]; if the server does not answer, its requests fail one by one without an error here.
pub async fn run(step: Journey, interrupt: &Interrupt) -> Result<Option<Travelled>, DriverError> {
    run_from(step, async { Ok(Instant::now() + LEAD) }, interrupt).await
}

/// Runs journeys whose clock starts at the time that `start` returns once every user is ready; `None` if they were
/// interrupted.
///
/// # Errors
/// See [`DriverError`]; also those of `start`.
pub async fn run_from<E: From<DriverError>>(
    step: Journey,
    start: impl Future<Output = Result<Instant, E>>,
    interrupt: &Interrupt,
) -> Result<Option<Travelled>, E> {
    let shared = Arc::new(Shared::new(step)?);
    // Ends pacer and users on every return.
    let _stop = Stop(&shared.tickets);
    for call in shared.step.steps.iter().filter_map(JourneyStep::grpc) {
        // Steps share the connections, so only the first step opens them.
        call.connections.warm().await;
    }
    // Dropped, not awaited, once every user has delivered: goose checks for finished users only twice a second.
    let mut attack = Box::pin(scenario_of(&shared)?.execute());
    let users = shared.step.users;
    let conducted = beside(
        conduct(&shared, start),
        &mut attack,
        users,
        &shared.delivered,
        interrupt,
    )
    .await?;
    Ok(conducted.map(|(travelled, _)| travelled))
}

struct Stop<'a>(&'a Tickets);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Waits for the users, starts the pacer, and collects the users' results.
async fn conduct<E: From<DriverError>>(
    shared: &Shared,
    start: impl Future<Output = Result<Instant, E>>,
) -> Result<Travelled, E> {
    let users = shared.step.users;
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

/// Creates the scenario of a journey, with its steps as transactions.
fn scenario_of(shared: &Arc<Shared>) -> Result<goose::GooseAttack, DriverError> {
    let mut scenario = Scenario::new("journey");
    for (index, step) in shared.step.steps.iter().enumerate() {
        let own = Arc::clone(shared);
        let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
            let shared = Arc::clone(&own);
            Box::pin(async move { user::walk(user, &shared, index).await })
        });
        let transaction = Transaction::new(function)
            .set_name(&step.name)
            // In the plan's order, one after the other.
            .set_sequence(index + 1);
        scenario = scenario.register_transaction(transaction);
    }
    attack(Attack {
        host: &shared.origin,
        users: shared.step.users,
        scenario,
        metrics: false,
    })
}
