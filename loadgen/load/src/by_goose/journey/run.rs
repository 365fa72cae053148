//! Run of journeys by goose, and its users, each with at most one journey in flight. In: tickets from the pacer. Out: a
//! sample for each step and each journey.
//!
//! goose calls one transaction after the other; the first takes a ticket, and a failed journey skips the remaining
//! ones. The time to extract values from a reply and to build the next request belongs to the next step.

use super::step::{Judged, StepRequest};
use super::template::Value;
use super::{Done, Journey, JourneyStep, Shared, StepSample, Travelled, Whole};
use crate::by_goose::send::{Sent, attack, send};
use crate::driver::{DriverError, Examples, LEAD, Reply};
use crate::interrupt::Interrupt;
use crate::lock;
use crate::pacer::Clock;
use crate::reply::{CHECKED_AT_ONCE_BYTES, CheckedReply, NoReply};
use crate::tickets::{Next, Taker, Ticket};
use futures::TryFutureExt as _;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tierlab_analysis::record::{Failure, Outcome, Sample};
use tokio::sync::Notify;

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
        let Done { journeys, steps } = std::mem::take(&mut *lock(&shared.done));
        Travelled {
            journeys,
            steps,
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
            Box::pin(async move { walk(user, &shared, index).await })
        });
        let transaction = Transaction::new(function)
            .set_name(&step.name)
            // In the plan's order, one after the other.
            .set_sequence(index + 1);
        scenario = scenario.register_transaction(transaction);
    }
    scenario
}

/// State that a user carries from one transaction to the next.
#[derive(Clone, Default)]
struct State {
    waiter: Arc<Waiter>,
    done: Done,
    underway: Option<Underway>,
}

/// Journey in flight.
#[derive(Clone)]
struct Underway {
    ticket: Ticket,
    /// Due time of the next step.
    due_us: u64,
    first_sent_us: Option<u64>,
    /// Sum of goose's times; `None` if another client sent a request.
    goose_us: Option<u64>,
    values: Vec<Option<Value>>,
}

/// Slot in which the pacer leaves a ticket.
#[derive(Default)]
struct Waiter {
    handed: Mutex<Option<Next>>,
    notify: Notify,
}

impl Waiter {
    fn leave(&self, next: Next) {
        *lock(&self.handed) = Some(next);
        self.notify.notify_one();
    }
}

impl Taker for Waiter {
    fn hand(self: Arc<Self>, ticket: Ticket) {
        self.leave(Next::Ticket(ticket));
    }

    fn end(&self) {
        self.leave(Next::Never);
    }
}

/// Result of one request.
struct Walked {
    sample: Sample,
    goose_us: Option<u64>,
    judged: Judged,
}

/// Transaction of a step.
async fn walk(user: &mut GooseUser, shared: &Arc<Shared>, index: usize) -> TransactionResult {
    let mut state = take_state(user, shared);
    if index == 0 {
        match next_ticket(&state.waiter, shared).await {
            Some(ticket) => state.underway = Some(begin(shared, ticket)),
            None => return end(user, shared, state),
        }
    }
    // Without a journey it has failed, or the user has ended.
    if let Some(mut underway) = state.underway.take() {
        let Some(clock) = shared.open_loop.users.clock() else {
            return end(user, shared, state);
        };
        let walked = request(user, shared, clock, index, &underway).await;
        let sample = walked.sample;
        state.done.steps[index].push(StepSample {
            sample,
            journey_due_us: underway.ticket.due_us,
        });
        underway.first_sent_us.get_or_insert(sample.sent_us);
        underway.goose_us = underway.goose_us.zip(walked.goose_us).map(|(sum, us)| sum + us);
        if let Outcome::Failed(failure) = sample.outcome {
            let says = walked.judged.reply.says.unwrap_or_else(|| failure.to_string());
            shared.examples[index].note(failure, says);
        }
        if sample.is_ok() && index + 1 < shared.step.steps.len() {
            underway.due_us = sample.done_us;
            for (slot, value) in walked.judged.taken {
                underway.values[slot] = Some(value);
            }
            state.underway = Some(underway);
        } else {
            state.done.journeys.push(arrive(shared, &underway, sample, index));
        }
    }
    user.set_session_data(state);
    Ok(())
}

/// Takes the user's state, or creates it at the first transaction.
fn take_state(user: &mut GooseUser, shared: &Shared) -> State {
    if let Some(state) = user.get_session_data_mut::<State>() {
        return std::mem::take(state);
    }
    if let Some(client) = &shared.client {
        user.client = client.client.clone();
    }
    shared.open_loop.users.ready.add_permits(1);
    let steps = vec![Vec::new(); shared.step.steps.len()];
    State {
        done: Done {
            steps,
            ..Done::default()
        },
        ..State::default()
    }
}

/// Returns the next ticket; `None` after the last.
async fn next_ticket(waiter: &Arc<Waiter>, shared: &Shared) -> Option<Ticket> {
    let taker: Arc<dyn Taker> = Arc::<Waiter>::clone(waiter);
    let mut next = shared.open_loop.tickets.next(&taker);
    while next == Next::Later {
        waiter.notify.notified().await;
        next = lock(&waiter.handed).take().unwrap_or(Next::Later);
    }
    match next {
        Next::Ticket(ticket) => Some(ticket),
        Next::Later | Next::Never => None,
    }
}

fn begin(shared: &Shared, ticket: Ticket) -> Underway {
    let mut values = vec![None; shared.step.values];
    let entities = &shared.step.entities;
    if let (Some(first), false) = (values.first_mut(), entities.is_empty()) {
        let entity = entities[ticket.index % entities.len()];
        *first = Some(Value::of(&entity.into()));
    }
    Underway {
        ticket,
        due_us: ticket.due_us,
        first_sent_us: None,
        goose_us: Some(0),
        values,
    }
}

/// Ends a journey, at its last or its failed step.
fn arrive(shared: &Shared, underway: &Underway, last: Sample, index: usize) -> Whole {
    shared.open_loop.tickets.finish();
    let sample = Sample {
        due_us: underway.ticket.due_us,
        sent_us: underway.first_sent_us.unwrap_or(last.sent_us),
        done_us: last.done_us,
        outcome: last.outcome,
        timings: None,
    };
    let in_window = shared.step.schedule.in_window(sample.due_us);
    shared.step.watch.over(&sample, in_window);
    Whole {
        sample,
        failed_at: (!last.is_ok()).then_some(index),
        goose_us: underway.goose_us,
    }
}

/// Sends one step's request, unless the drain limit has passed; reads and checks its reply.
async fn request(
    user: &mut GooseUser,
    shared: &Arc<Shared>,
    clock: Clock,
    index: usize,
    underway: &Underway,
) -> Walked {
    let step = &shared.step.steps[index];
    let made = step.request(|path| shared.url(path), &underway.values);
    let sent_us = clock.now_us();
    let walked = |judged: Judged, done_us: u64, goose_us: Option<u64>| Walked {
        sample: Sample {
            due_us: underway.due_us,
            sent_us,
            done_us,
            outcome: judged.reply.outcome,
            timings: judged.reply.timings,
        },
        goose_us,
        judged,
    };
    let failed = |missing: NoReply, done_us: u64| walked(CheckedReply::from(missing).into(), done_us, None);
    if sent_us >= shared.open_loop.drain_end_us {
        return failed(Failure::DrainLimit.into(), sent_us);
    }
    let made = match made {
        Ok(made) => made,
        // A value from an earlier reply cannot be sent.
        Err(what) => return failed(NoReply::new(Failure::WrongReply, what), sent_us),
    };
    let sending = async {
        match made {
            StepRequest::Http(request) => send(user, &step.name, *request, None, &step.limit).await,
            StepRequest::Grpc(call, message) => {
                let calling = call.connections.call_within(message, &step.limit, shared.step.timeout);
                Sent::without_goose(calling.await.map(Reply::Grpc))
            }
        }
    };
    let Ok(sent) = tokio::time::timeout_at(clock.at(shared.open_loop.drain_end_us).into(), sending).await else {
        return failed(Failure::DrainLimit.into(), clock.now_us());
    };
    let done_us = clock.now_us();
    let judged: Judged = match sent.reply {
        Err(missing) => CheckedReply::from(missing).into(),
        Ok(reply) => judge(reply, shared, index).await,
    };
    walked(judged, done_us, sent.goose_us)
}

async fn judge(reply: Reply, shared: &Arc<Shared>, index: usize) -> Judged {
    if reply.len() <= CHECKED_AT_ONCE_BYTES {
        return shared.step.steps[index].judge(&reply);
    }
    // Large replies are checked on another thread, because other users wait for this one.
    let steps = Arc::clone(&shared.step.steps);
    let checking = tokio::task::spawn_blocking(move || steps[index].judge(&reply));
    let judged = checking.await;
    judged.unwrap_or_else(|error| CheckedReply::wrong(&error, None).into())
}

/// Delivers the results, and lets goose end the user after this round of transactions.
fn end(user: &mut GooseUser, shared: &Shared, mut state: State) -> TransactionResult {
    let mut done = lock(&shared.done);
    done.journeys.append(&mut state.done.journeys);
    for (all, own) in done.steps.iter_mut().zip(&mut state.done.steps) {
        all.append(own);
    }
    drop(done);
    // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
    user.config.iterations = Some(1);
    shared.open_loop.users.delivered.add_permits(1);
    Ok(())
}
