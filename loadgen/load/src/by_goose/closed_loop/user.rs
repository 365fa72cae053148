//! One goose user of a closed loop: a transaction is one request with the pause before it. In: the step's shared state.
//! Out: a turn for each request, delivered after the window.

use super::shared::{Carrier, LAST_BYTE, Shared, Turn};
use crate::by_goose::send::{Sent, send};
use crate::driver::{Reply, judge};
use crate::pacer::Clock;
use crate::payload::Body;
use crate::reply::Limit;
use goose::goose::{GooseUser, TransactionResult};
use reqwest::Request;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tierlab_analysis::record::{Outcome, Sample};

/// Maximum length of one sleep, so that the end of a step does not wait for long pauses.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

/// State that a user carries from one transaction to the next.
#[derive(Clone, Default)]
struct State {
    turns: Vec<Turn>,
    last_done_us: Option<u64>,
    next_think: usize,
}

/// Runs one request with its pause. After the window it ends the user.
pub(super) async fn turn(user: &mut GooseUser, shared: &Arc<Shared>) -> TransactionResult {
    let mut state = match user.get_session_data_mut::<State>() {
        Some(state) => std::mem::take(state),
        None => begin(user, shared).await,
    };
    let Some(clock) = shared.users.clock().filter(|_| !shared.is_stopped()) else {
        return end(user, shared, state);
    };
    let think_us = shared.thinks_us[state.next_think % shared.thinks_us.len()];
    state.next_think += 1;
    if let Some(done_us) = state.last_done_us {
        pause(shared, clock, done_us + think_us).await;
    }
    if clock.now_us() >= shared.window_end_us || shared.is_stopped() {
        return end(user, shared, state);
    }
    let turn = request(user, shared, clock, &state, think_us).await?;
    shared
        .step
        .watch
        .over(&turn.sample, shared.in_window(turn.sample.sent_us));
    state.last_done_us = Some(turn.sample.done_us);
    state.turns.push(turn);
    user.set_session_data(state);
    Ok(())
}

impl Carrier {
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
async fn begin(user: &mut GooseUser, shared: &Shared) -> State {
    shared.carrier.begin(user).await;
    let number = shared.next_user.fetch_add(1, Ordering::Relaxed);
    let mut started = shared.started.subscribe();
    shared.users.ready.add_permits(1);
    // The sender signals before it is dropped.
    let _ = started.wait_for(|started| *started).await;
    if let Some(clock) = shared.users.clock() {
        tokio::time::sleep_until(clock.at(0).into()).await;
    }
    State {
        turns: Vec::with_capacity(256),
        // Distinct offsets, because otherwise all users would pause alike.
        next_think: number * shared.thinks_us.len() / shared.step.users.max(1),
        ..State::default()
    }
}

async fn pause(shared: &Shared, clock: Clock, until_us: u64) {
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
    shared: &Arc<Shared>,
    clock: Clock,
    state: &State,
    think_us: u64,
) -> Result<Turn, Box<goose::goose::TransactionError>> {
    let (body, expected) = shared.next();
    let sent_us = clock.now_us();
    let sent = shared.carrier.send(user, body, &shared.step.limit).await;
    let done_us = clock.now_us();
    // All times were read: the work from here on is part of the pause.
    let judged = judge(sent.reply, expected).await;
    let error = match judged.outcome {
        Outcome::Ok => None,
        Outcome::Failed(failure) => {
            if let Some(says) = judged.says {
                shared.examples.note(failure, says);
            }
            Some(failure.to_string())
        }
    };
    let took = Duration::from_micros(done_us - sent_us);
    user.record_custom_request_duration(LAST_BYTE, "infer", took, error.is_none(), sent.status, error.as_deref())
        .await?;
    Ok(Turn {
        sample: Sample {
            due_us: sent_us,
            sent_us,
            done_us,
            outcome: judged.outcome,
            timings: judged.timings,
        },
        pause_us: state.last_done_us.map(|last_us| sent_us - last_us),
        think_us,
        goose_us: sent.goose_us,
    })
}

/// Delivers the turns, and lets goose end the user after this transaction.
fn end(user: &mut GooseUser, shared: &Shared, mut state: State) -> TransactionResult {
    let mut turns = shared.turns.lock().unwrap_or_else(PoisonError::into_inner);
    turns.append(&mut state.turns);
    drop(turns);
    // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
    user.config.iterations = Some(1);
    shared.users.delivered.add_permits(1);
    Ok(())
}
