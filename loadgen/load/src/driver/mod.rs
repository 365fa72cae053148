//! One step against one server. In: a schedule, bodies and an address. Out: one sample per ticket, unsorted.
//!
//! goose provides the users at no cost per request: a user is one transaction that takes tickets until the last
//! (`user`). goose's throttle, metrics, clock and client are not used: every request's times are read here, on the
//! step's clock, with the end at the last byte of the body. Knows nothing of percentiles.

mod http;
mod reply;
mod send_time;
mod shared;
mod step;
mod user;

pub(crate) use http::HttpReply;
pub use http::HttpRoute;
pub(crate) use reply::{Reply, judge};
pub use step::{DriverError, Finished, Route, Step};

use crate::interrupt::Interrupt;
use crate::pacer::{self, Clock};
use crate::tickets::Tickets;
use futures::FutureExt as _;
use goose::client::GooseClientBuilder;
use goose::config::GooseConfiguration;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use goose::{GooseAttack, GooseError};
use shared::Shared;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use user::User;

/// Time between the last user's start and the step's zero.
const LEAD: Duration = Duration::from_millis(10);
/// Time limit for goose to start its users.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for users to finish after the drain limit.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

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
    let users = step.users;
    let shared = Arc::new(Shared::new(step));
    // Ends pacer and users on every return.
    let _stop = Stop(&shared.tickets);
    // Dropped, not awaited, once every user has delivered: goose checks for finished users only twice a second.
    let mut attack = Box::pin(attack(&shared)?.execute());
    let conducted = beside(
        conduct(&shared, users, start),
        &mut attack,
        users,
        &shared.delivered,
        interrupt,
    )
    .await?;
    Ok(conducted.map(|(finished, _)| finished))
}

/// Conducts a step of some users beside goose, which runs them; returns goose's result too if it has ended already.
/// `None` if it was interrupted.
pub(crate) async fn beside<T, M, E: From<DriverError>>(
    conduct: impl Future<Output = Result<T, E>>,
    goose: impl Future<Output = Result<M, GooseError>>,
    users: usize,
    delivered: &Semaphore,
    interrupt: &Interrupt,
) -> Result<Option<(T, Option<M>)>, E> {
    let mut conduct = Box::pin(conduct);
    let ended = tokio::select! {
        biased;
        conducted = &mut conduct => return Ok(Some((conducted?, None))),
        ended = goose => ended.map_err(|error| DriverError::Goose(Box::new(error)))?,
        () = interrupt.raised() => return Ok(None),
    };
    // goose ends because its users have, so all their deliveries are there; they may have come after the last poll.
    if let Some(conducted) = conduct.as_mut().now_or_never() {
        return Ok(Some((conducted?, Some(ended))));
    }
    // Returns its permits, so that the next line counts them.
    drop(conduct);
    let missing = users.saturating_sub(delivered.available_permits());
    Err(DriverError::Users(missing, users, "ended before the step").into())
}

struct Stop<'a>(&'a Tickets);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Waits for the users, starts the pacer, and collects the users' results.
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

/// Waits until `users` users have added their permit.
pub(crate) async fn wait_for_all(
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

/// Runs a goose user.
async fn serve(shared: Arc<Shared>) {
    let user = Arc::new(User::new(Arc::clone(&shared)));
    user.warm().await;
    shared.ready.add_permits(1);
    let mut samples = user.serve().await;
    shared
        .samples
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .append(&mut samples);
    shared.delivered.add_permits(1);
}

fn attack(shared: &Arc<Shared>) -> Result<GooseAttack, DriverError> {
    let user = {
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
    };
    GooseAttack::initialize_with_config(configuration(&shared.step)?)
        // Unused, but otherwise goose creates a client for each user.
        .and_then(|attack| attack.set_client_builder_without_cookies(GooseClientBuilder::new().without_cookies()))
        .map(|attack| attack.register_scenario(Scenario::new("tickets").register_transaction(user)))
        .map_err(|error| DriverError::Goose(Box::new(error)))
}

/// Starts all users at once, without any output.
fn configuration(step: &Step) -> Result<GooseConfiguration, DriverError> {
    // Field by field: some are private, so no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(step.routes.first().ok_or(DriverError::NoServer)?.host());
    configuration.users = Some(step.users);
    configuration.increase_rate = Some("1000000".into());
    configuration.quiet = 1;
    configuration.no_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    Ok(configuration)
}

#[cfg(test)]
mod tests;
