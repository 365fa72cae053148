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
//! - `step`: one request and its result; `grpc_call`: the same over gRPC; `shared`: state shared
//!   by users; `user`: a goose user, which takes tickets and runs the steps

pub mod inputs;
mod shared;
mod step;
pub mod template;
mod user;
pub mod value;

pub use shared::{Journey, StepSample, Whole};
pub use step::{Check, GrpcCall, JourneyStep, StepCarrier, Take};

use crate::driver::{DriverError, Examples, LEAD, attack};
use crate::interrupt::Interrupt;
use crate::pacer::Observed;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction};
use shared::Shared;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};
use tierlab_analysis::record::Failure;

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
    for call in shared.step.steps.iter().filter_map(JourneyStep::grpc) {
        // Steps share the connections, so only the first step opens them.
        call.connections.warm(false).await;
    }
    let host = shared.step.endpoint.address().url();
    let attack = attack(host, shared.step.users, scenario_of(&shared), false)?;
    let ran = shared.open_loop.run(attack, start, interrupt).await?;
    Ok(ran.map(|(observed, window_began)| {
        let done = std::mem::take(&mut *shared.done.lock().unwrap_or_else(PoisonError::into_inner));
        Travelled {
            journeys: done.journeys,
            steps: done.steps,
            observed,
            window_began,
            examples: shared.examples.iter().map(Examples::take).collect(),
        }
    }))
}

/// Creates the scenario of a journey, with its steps as transactions.
fn scenario_of(shared: &Arc<Shared>) -> Scenario {
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
    scenario
}
