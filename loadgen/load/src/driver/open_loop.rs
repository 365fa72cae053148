//! Users of a step and the run of an open loop. In: tickets, a start. Out: the pacer's observations. Independent of
//! requests and of the users' results.

use super::DriverError;
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::lock;
use crate::pacer::{self, Clock, Observed};
use crate::schedule::{Schedule, micros};
use crate::tickets::Tickets;
use futures::FutureExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::Failure;
use tokio::sync::Semaphore;

/// Time between the last user's start and the step's zero.
pub(crate) const LEAD: Duration = Duration::from_millis(10);
/// Time limit for users to start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for users to finish after the drain limit.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// Users of a step: their arrivals at its start and its end, and their clock.
pub(crate) struct Users {
    pub(crate) count: usize,
    /// A permit of each user that can begin.
    pub(crate) ready: Semaphore,
    /// A permit of each user that has handed over its results.
    pub(crate) delivered: Semaphore,
    pub(crate) clock: OnceLock<Clock>,
}

impl Users {
    pub(crate) const fn new(count: usize) -> Self {
        Self {
            count,
            ready: Semaphore::const_new(0),
            delivered: Semaphore::const_new(0),
            clock: OnceLock::new(),
        }
    }

    /// The step's clock, once it has started.
    pub(crate) fn clock(&self) -> Option<Clock> {
        self.clock.get().copied()
    }

    /// Waits until all are ready.
    pub(crate) async fn all_ready(&self) -> Result<(), DriverError> {
        self.all(&self.ready, START_LIMIT, "did not start").await
    }

    /// Waits until all have delivered.
    pub(crate) async fn all_delivered(&self, limit: Duration) -> Result<(), DriverError> {
        self.all(&self.delivered, limit, "did not end").await
    }

    async fn all(&self, arrived: &Semaphore, limit: Duration, what: &'static str) -> Result<(), DriverError> {
        let all = u32::try_from(self.count).unwrap_or(u32::MAX);
        let arrival = tokio::time::timeout(limit, arrived.acquire_many(all)).await;
        let missing = |_| DriverError::Users(self.count - arrived.available_permits(), self.count, what);
        arrival.map(drop).map_err(missing)
    }

    /// Conducts a step beside the users' run; returns the run's result too if it has ended already. `None` if the step was
    /// interrupted.
    pub(crate) async fn run_both<T, M, E: From<DriverError>>(
        &self,
        conduct: impl Future<Output = Result<T, E>>,
        run: impl Future<Output = Result<M, DriverError>>,
        interrupt: &Interrupt,
    ) -> Result<Option<(T, Option<M>)>, E> {
        let mut conduct = Box::pin(conduct);
        let ended = tokio::select! {
            biased;
            conducted = &mut conduct => return Ok(Some((conducted?, None))),
            ended = run => ended?,
            () = interrupt.raised() => return Ok(None),
        };
        // The run ends once its users have ended, so all deliveries are in, possibly since the last poll. Polled
        // outside tokio's task budget, which the ends of the users may have used up.
        if let Some(conducted) = tokio::task::unconstrained(conduct.as_mut()).now_or_never() {
            return Ok(Some((conducted?, Some(ended))));
        }
        // Returns its permits, so that the next line counts them.
        drop(conduct);
        let missing = self.count.saturating_sub(self.delivered.available_permits());
        Err(DriverError::Users(missing, self.count, "ended before the step").into())
    }
}

/// Tickets of an open loop, and the users that take them.
pub(crate) struct OpenLoop {
    pub(crate) users: Users,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) drain_end_us: u64,
    watch: Watch,
}

impl OpenLoop {
    pub(crate) fn new(schedule: &Arc<Schedule>, users: usize, drain: Duration, watch: &Watch) -> Self {
        Self {
            users: Users::new(users),
            tickets: Arc::new(Tickets::new(Arc::clone(schedule), users)),
            drain_end_us: schedule.window_end_us + micros(drain),
            watch: watch.clone(),
        }
    }

    /// Conducts the step beside the users' run. Its clock starts at the time that `start` returns once every user is
    /// ready. Returns the pacer's observations and the start of the window; `None` if it was interrupted.
    pub(crate) async fn run<T, E: From<DriverError>>(
        &self,
        users: impl Future<Output = Result<T, DriverError>>,
        start: impl Future<Output = Result<Instant, E>>,
        interrupt: &Interrupt,
    ) -> Result<Option<(Observed, SystemTime)>, E> {
        // Ends pacer and users on every return.
        let _stop = Stop(&self.tickets);
        // Dropped, not awaited, once every user has delivered: goose checks for ended users only twice a second.
        let mut users = Box::pin(users);
        let conducted = self.users.run_both(self.conduct(start), &mut users, interrupt).await?;
        Ok(conducted.map(|(ended, _)| ended))
    }

    /// Waits for the users, starts the pacer, and waits for the users' end.
    async fn conduct<E: From<DriverError>>(
        &self,
        start: impl Future<Output = Result<Instant, E>>,
    ) -> Result<(Observed, SystemTime), E> {
        self.users.all_ready().await?;
        let start = start.await?;
        let clock = *self.users.clock.get_or_init(|| Clock::starting_at(start));
        let warmup = Duration::from_micros(self.tickets.schedule.window_start_us);
        let window_began = SystemTime::now() + start.saturating_duration_since(Instant::now()) + warmup;
        self.watch.starts(&self.tickets, clock);
        let pacer = pacer::start(Arc::clone(&self.tickets), clock).map_err(DriverError::Pacer)?;
        let limit = clock.at(self.drain_end_us).saturating_duration_since(Instant::now()) + DELIVERY_LIMIT;
        self.users.all_delivered(limit).await?;
        let observed = pacer.join();
        let observed = observed.map_err(|_| DriverError::Pacer(std::io::Error::other("it panicked")))?;
        Ok((observed, window_began))
    }
}

struct Stop<'a>(&'a Tickets);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// First example of each kind of failure; locked by failed requests only.
#[derive(Default)]
pub(crate) struct Examples(Mutex<BTreeMap<Failure, String>>);

impl Examples {
    pub(crate) fn note(&self, failure: Failure, message: String) {
        lock(&self.0).entry(failure).or_insert(message);
    }

    pub(crate) fn take(&self) -> BTreeMap<Failure, String> {
        std::mem::take(&mut lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{consume_budget, coop};

    /// Ends of many users take as much of the budget.
    #[tokio::test]
    async fn users_that_end_together_have_all_delivered() {
        let users = Users::new(2);
        let run = async {
            while coop::has_budget_remaining() {
                consume_budget().await;
            }
            users.delivered.add_permits(2);
            Ok(())
        };
        let conduct = users.all_delivered(Duration::from_secs(60));
        let ended: Result<_, DriverError> = users.run_both(conduct, run, &Interrupt::never()).await;
        assert!(matches!(ended, Ok(Some(((), Some(()))))), "{:?}", ended.map(|_| ()));
    }
}
