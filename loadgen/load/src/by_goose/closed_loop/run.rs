//! Run of a closed loop by goose, its users, and the terms of its law. A transaction is one request with the pause
//! before it; users deliver their cycles after the window.

use super::{ClosedLoop, ClosedLoopRun, Cycle, LAST_BYTE, LoopShared, Transport};
use crate::by_goose::send::{Sent, attack, send};
use crate::driver::{DriverError, Finished, LEAD, Reply, Route, check_reply};
use crate::interrupt::Interrupt;
use crate::lock;
use crate::pacer::{Clock, Observed};
use crate::payload::Body;
use crate::reply::Limit;
use crate::schedule::Schedule;
use futures::TryFutureExt as _;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use goose::metrics::GooseMetrics;
use reqwest::Request;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::{ClosedLoopFigures, Outcome, Sample};

/// Time for users and goose to end after the last possible reply; goose checks for finished users twice a second.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Runs a closed loop; `None` if it was interrupted.
///
/// # Errors
/// See [`DriverError`]; if the server does not answer, its requests fail one by one without an error here.
pub async fn run(step: ClosedLoop, interrupt: &Interrupt) -> Result<Option<ClosedLoopRun>, DriverError> {
    let shared = Arc::new(LoopShared::new(step)?);
    // Ends the users on every return.
    let _stop = LoopStop(&shared);
    let mut attack = Box::pin(scenario_of(&shared)?.execute());
    let users = shared.step.users;
    let attacking = (&mut attack).map_err(DriverError::from);
    let conducted = shared.users.run_both(conduct(&shared), attacking, interrupt).await?;
    let Some((window_began, ended)) = conducted else {
        return Ok(None);
    };
    let metrics = match ended {
        Some(metrics) => metrics,
        None => tokio::select! {
            ended = tokio::time::timeout(END_LIMIT, attack) => {
                ended.map_err(|_| DriverError::Users(users, users, "ended, but goose did not"))??
            }
            () = interrupt.raised() => return Ok(None),
        },
    };
    Ok(Some(collect(&shared, window_began, &metrics)))
}

struct LoopStop<'a>(&'a LoopShared);

impl Drop for LoopStop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
        // Releases users that wait for the start.
        self.0.started.send_replace(true);
    }
}

/// Waits for the users, starts their clock, and waits for their end.
async fn conduct(shared: &LoopShared) -> Result<SystemTime, DriverError> {
    shared.users.all_ready().await?;
    let start = Instant::now() + LEAD;
    let clock = *shared.users.clock.get_or_init(|| Clock::starting_at(start));
    let window_began = SystemTime::now() + LEAD + shared.step.warmup;
    shared.step.watch.closed_loop(shared.users.count, clock);
    shared.started.send_replace(true);
    let last = clock.at(shared.window_end_us) + shared.step.timeout;
    let limit = last.saturating_duration_since(Instant::now()) + END_LIMIT;
    shared.users.all_delivered(limit).await?;
    Ok(window_began)
}

/// Creates a scenario of one transaction, which goose repeats.
fn scenario_of(shared: &Arc<LoopShared>) -> Result<goose::GooseAttack, DriverError> {
    let own = Arc::clone(shared);
    let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
        let shared = Arc::clone(&own);
        Box::pin(async move { run_cycle(user, &shared).await })
    });
    let host = match &shared.step.route {
        Route::Http(route) => route.endpoint.address.url(),
        Route::Grpc(connections) => connections.endpoint.address.url(),
    };
    let scenario = Scenario::new("closed loop").register_transaction(Transaction::new(function));
    attack(host, shared.users.count, scenario, true)
}

fn collect(shared: &LoopShared, window_began: SystemTime, metrics: &GooseMetrics) -> ClosedLoopRun {
    let mut cycles = std::mem::take(&mut *lock(&shared.cycles));
    cycles.sort_unstable_by_key(|cycle| cycle.sample.sent_us);
    let window_s = (shared.window_end_us - shared.window_start_us) as f64 / 1e6;
    let samples: Vec<Sample> = cycles.iter().map(|cycle| cycle.sample).collect();
    let inside = |sample: &Sample| {
        let from = sample.sent_us.max(shared.window_start_us);
        sample.done_us.min(shared.window_end_us).saturating_sub(from)
    };
    let in_flight_us: u64 = samples.iter().map(inside).sum();
    let observed = Observed {
        mean_in_flight: in_flight_us as f64 / 1e6 / window_s,
        ..Observed::default()
    };
    let counted = metrics.requests.iter().filter(|(name, _)| name.starts_with(LAST_BYTE));
    ClosedLoopRun {
        figures: figures(&cycles, |us| shared.in_window(us), window_s),
        goose_us: cycles
            .iter()
            .filter(|cycle| cycle.sample.is_ok() && shared.in_window(cycle.sample.sent_us))
            .filter_map(|cycle| cycle.goose_us)
            .collect(),
        goose_counted: counted.map(|(_, request)| request.raw_data.counter as u64).sum(),
        schedule: Schedule {
            due_us: samples.iter().map(|sample| sample.sent_us).collect(),
            window_start_us: shared.window_start_us,
            window_end_us: shared.window_end_us,
            window_requests: samples.iter().filter(|sample| shared.in_window(sample.sent_us)).count(),
            stops: false,
        },
        finished: Finished {
            examples: shared.examples.take(),
            ..Finished::of(samples, observed, window_began)
        },
    }
}

/// Computes the terms of the law, over the cycles that ended in the window.
fn figures(cycles: &[Cycle], in_window: impl Fn(u64) -> bool, window_s: f64) -> ClosedLoopFigures {
    let ended: Vec<&Cycle> = cycles.iter().filter(|cycle| in_window(cycle.sample.done_us)).collect();
    let paused = ended.iter();
    let paused = paused.filter_map(|cycle| Some((cycle.pause_us?, cycle.think_us)));
    let paused: Vec<(u64, u64)> = paused.collect();
    let mean = |sum: u64, count: usize| sum as f64 / count.max(1) as f64;
    ClosedLoopFigures {
        ended_rps: ended.len() as f64 / window_s,
        mean_response_us: mean(ended.iter().map(|cycle| cycle.sample.service_us()).sum(), ended.len()),
        mean_pause_us: mean(paused.iter().map(|(pause_us, _)| pause_us).sum(), paused.len()),
        mean_think_us: mean(paused.iter().map(|(_, think_us)| think_us).sum(), paused.len()),
    }
}

/// Maximum length of one sleep, so that the end of a step does not wait for long pauses.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// State that a user carries from one transaction to the next.
#[derive(Clone, Default)]
struct LoopState {
    cycles: Vec<Cycle>,
    last_done_us: Option<u64>,
    next_think: usize,
}

/// Runs one request with its pause. After the window it ends the user.
async fn run_cycle(user: &mut GooseUser, shared: &Arc<LoopShared>) -> TransactionResult {
    let mut state = match user.get_session_data_mut::<LoopState>() {
        Some(state) => std::mem::take(state),
        None => begin(user, shared).await,
    };
    let Some(clock) = shared.users.clock().filter(|_| !shared.is_stopped()) else {
        return end(user, shared, state);
    };
    let think_us = shared.think_times_us[state.next_think % shared.think_times_us.len()];
    state.next_think += 1;
    if let Some(done_us) = state.last_done_us {
        pause(shared, clock, done_us + think_us).await;
    }
    if clock.now_us() >= shared.window_end_us || shared.is_stopped() {
        return end(user, shared, state);
    }
    let cycle = request(user, shared, clock, &state, think_us).await?;
    let in_window = shared.in_window(cycle.sample.sent_us);
    shared.step.watch.record(&cycle.sample, in_window);
    state.last_done_us = Some(cycle.sample.done_us);
    state.cycles.push(cycle);
    user.set_session_data(state);
    Ok(())
}

impl Transport {
    /// Prepares a user's first request: sets the step's client, or opens a connection.
    async fn begin(&self, user: &mut GooseUser) {
        match self {
            Self::Http(http) => user.client = http.client.client.clone(),
            Self::Grpc(connections, _) => connections.warm(false).await,
        }
    }

    async fn send(&self, user: &mut GooseUser, body: &Body, limit: &Limit) -> Sent {
        match self {
            Self::Http(http) => {
                let mut request = Request::new(http.route.method.clone(), http.url.clone());
                request.headers_mut().clone_from(&http.headers);
                request.headers_mut().extend(http.route.headers(body));
                *request.body_mut() = Some(body.bytes.clone().into());
                send(user, "infer", request, http.route.success.clone(), limit).await
            }
            Self::Grpc(connections, timeout) => {
                let called = connections.call_within(body.bytes.clone(), limit, *timeout).await;
                Sent::without_goose(called.map(Reply::Grpc))
            }
        }
    }
}

/// Prepares a user's first transaction: sets the step's client, and waits for all others.
async fn begin(user: &mut GooseUser, shared: &LoopShared) -> LoopState {
    shared.transport.begin(user).await;
    let number = shared.next_user.fetch_add(1, Ordering::Relaxed);
    let mut started = shared.started.subscribe();
    shared.users.ready.add_permits(1);
    // The sender signals before it is dropped.
    let _ = started.wait_for(|started| *started).await;
    if let Some(clock) = shared.users.clock() {
        tokio::time::sleep_until(clock.at(0).into()).await;
    }
    LoopState {
        cycles: Vec::with_capacity(256),
        // Distinct offsets, because otherwise all users would pause alike.
        next_think: number * shared.think_times_us.len() / shared.step.users.max(1),
        ..LoopState::default()
    }
}

async fn pause(shared: &LoopShared, clock: Clock, until_us: u64) {
    let until = clock.at(until_us.min(shared.window_end_us));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.is_stopped() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

async fn request(
    user: &mut GooseUser,
    shared: &Arc<LoopShared>,
    clock: Clock,
    state: &LoopState,
    think_us: u64,
) -> Result<Cycle, Box<goose::goose::TransactionError>> {
    let (body, expected) = shared.next();
    let sent_us = clock.now_us();
    let sent = shared.transport.send(user, body, &shared.step.limit).await;
    let done_us = clock.now_us();
    // All times were read: the work from here on is part of the pause.
    let checked = check_reply(sent.reply, expected).await;
    let mut error = None;
    if let Outcome::Failed(failure) = checked.outcome {
        error = Some(failure.to_string());
        if let Some(message) = checked.message {
            shared.examples.note(failure, message);
        }
    }
    let took = Duration::from_micros(done_us - sent_us);
    user.record_custom_request_duration(LAST_BYTE, "infer", took, error.is_none(), sent.status, error.as_deref())
        .await?;
    Ok(Cycle {
        sample: Sample {
            due_us: sent_us,
            sent_us,
            done_us,
            outcome: checked.outcome,
            timings: checked.timings,
        },
        pause_us: state.last_done_us.map(|last_us| sent_us - last_us),
        think_us,
        goose_us: sent.goose_us,
    })
}

/// Delivers the cycles, and lets goose end the user after this transaction.
fn end(user: &mut GooseUser, shared: &LoopShared, mut state: LoopState) -> TransactionResult {
    lock(&shared.cycles).append(&mut state.cycles);
    // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
    user.config.iterations = Some(1);
    shared.users.delivered.add_permits(1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::Outcome;

    #[test]
    fn the_terms_of_the_law_are_of_the_cycles_that_end_in_the_window() {
        let cycle = |sent_us: u64, done_us: u64, pause_us| Cycle {
            sample: Sample {
                due_us: sent_us,
                sent_us,
                done_us,
                outcome: Outcome::Ok,
                timings: None,
            },
            pause_us,
            think_us: 1_000,
            goose_us: None,
        };
        // One user: 4 ms per request, 1 ms of pause, from 0 to 100 ms; the window is the second half.
        let cycles: Vec<Cycle> = (0..20)
            .map(|i| cycle(i * 5_000, i * 5_000 + 4_000, (i > 0).then_some(1_000)))
            .collect();
        let figures = figures(&cycles, |us| (50_000..100_000).contains(&us), 0.05);
        assert!((figures.ended_rps - 200.0).abs() < 1e-9);
        assert!((figures.mean_response_us - 4_000.0).abs() < 1e-9);
        assert!((figures.users_by_law() - 1.0).abs() < 1e-9, "{figures:?}");
    }
}
