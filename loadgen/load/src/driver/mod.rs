//! One step against one server. In: a schedule, bodies and an address. Out: one sample per ticket, unsorted.
//!
//! goose provides the users at no cost per request: a user is one transaction that takes tickets until the last
//! (`user`). goose's throttle, metrics, clock and client are not used: every request's times are read here, on the
//! step's clock, with the end at the last byte of the body. Knows nothing of percentiles.

mod http;
mod open_loop;
mod reply;
mod step;
mod user;

pub use http::HttpRoute;
pub use step::{DriverError, Finished, Route, Step};

pub(crate) use http::HttpReply;
pub(crate) use open_loop::{Examples, LEAD, OpenLoop, Users, attack, micros};
pub(crate) use reply::{Reply, judge};

use crate::interrupt::Interrupt;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use user::{Shared, User};

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
    let host = step.routes.first().ok_or(DriverError::NoServer)?.host();
    let shared = Arc::new(Shared::new(step));
    let scenario = Scenario::new("tickets").register_transaction(transaction(&shared));
    let attack = attack(host, shared.open_loop.users.count, scenario, false)?;
    let ran = shared.open_loop.run(attack, start, interrupt).await?;
    Ok(ran.map(|(observed, window_began)| Finished {
        samples: std::mem::take(&mut shared.samples.lock().unwrap_or_else(PoisonError::into_inner)),
        observed,
        window_began,
        examples: shared.examples.take(),
    }))
}

/// Creates the one transaction of a goose user, which takes tickets until the last.
fn transaction(shared: &Arc<Shared>) -> Transaction {
    let shared = Arc::clone(shared);
    let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
        let shared = Arc::clone(&shared);
        // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
        user.config.iterations = Some(1);
        Box::pin(async move {
            serve(shared).await;
            TransactionResult::Ok(())
        })
    });
    Transaction::new(function)
}

/// Runs a goose user.
async fn serve(shared: Arc<Shared>) {
    let user = Arc::new(User::new(Arc::clone(&shared)));
    user.warm().await;
    shared.open_loop.users.ready.add_permits(1);
    let mut samples = user.serve().await;
    shared
        .samples
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .append(&mut samples);
    shared.open_loop.users.delivered.add_permits(1);
}

#[cfg(test)]
mod tests;
