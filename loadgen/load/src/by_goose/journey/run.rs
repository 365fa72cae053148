//! Run of journeys by goose.

use super::shared::Shared;
use super::{Journey, JourneyStep, Travelled, user};
use crate::by_goose::send::attack;
use crate::driver::{DriverError, Examples, LEAD};
use crate::interrupt::Interrupt;
use futures::TryFutureExt as _;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

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
    let host = shared.step.endpoint.address.url();
    let attack = attack(host, shared.step.users, scenario_of(&shared), false)?;
    let ran = shared
        .open_loop
        .run(Box::pin(attack.execute().map_err(DriverError::from)), start, interrupt)
        .await?;
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
