//! Run of journeys by goose, and its users, each with at most one journey in flight. In: tickets from the pacer. Out: a
//! sample for each step and each journey.
//!
//! goose calls one transaction after the other; the first takes a ticket, and a failed journey skips the remaining
//! ones. The time to extract values from a reply and to build the next request belongs to the next step.

use super::step::{CheckedStep, StepRequest};
use super::template::Value;
use super::{EndedJourneys, Journey, JourneyResults, JourneySample, JourneyShared, JourneyStep, StepSample};
use crate::by_goose::send::{Sent, attack, send};
use crate::driver::{DriverError, Examples, LEAD, Reply};
use crate::interrupt::Interrupt;
use crate::lock;
use crate::pacer::Clock;
use crate::reply::{CHECKED_AT_ONCE_BYTES, CheckedReply, NoReply};
use crate::tickets::{Next, Ticket, TicketTaker};
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
pub async fn run(step: Journey, interrupt: &Interrupt) -> Result<Option<JourneyResults>, DriverError> {
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
) -> Result<Option<JourneyResults>, E> {
    let shared = Arc::new(JourneyShared::new(step)?);
    for call in shared.step.steps.iter().filter_map(JourneyStep::grpc) {
        // Steps share the connections, so only the first step opens them.
        call.connections.warm(false).await;
    }
    let host = shared.step.endpoint.address.url();
    let attack = attack(host, shared.step.users, scenario_of(&shared), false)?;
    let attacking = Box::pin(attack.execute().map_err(DriverError::from));
    let ran = shared.open_loop.run(attacking, start, interrupt).await?;
    Ok(ran.map(|(observed, window_began)| {
        let EndedJourneys { journeys, steps } = std::mem::take(&mut *lock(&shared.done));
        JourneyResults {
            journeys,
            steps,
            observed,
            window_began,
            examples: shared.examples.iter().map(Examples::take).collect(),
        }
    }))
}

/// Creates the scenario of a journey, with its steps as transactions.
fn scenario_of(shared: &Arc<JourneyShared>) -> Scenario {
    let mut scenario = Scenario::new("journey");
    for (index, step) in shared.step.steps.iter().enumerate() {
        let own = Arc::clone(shared);
        let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
            let shared = Arc::clone(&own);
            Box::pin(async move { run_step(user, &shared, index).await })
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
struct JourneyState {
    waiter: Arc<Waiter>,
    done: EndedJourneys,
    active: Option<ActiveJourney>,
}

/// Journey in flight.
#[derive(Clone)]
struct ActiveJourney {
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
    assigned: Mutex<Option<Next>>,
    notify: Notify,
}

impl Waiter {
    fn deliver(&self, next: Next) {
        *lock(&self.assigned) = Some(next);
        self.notify.notify_one();
    }
}

impl TicketTaker for Waiter {
    fn assign(self: Arc<Self>, ticket: Ticket) {
        self.deliver(Next::Ticket(ticket));
    }

    fn end(&self) {
        self.deliver(Next::Closed);
    }
}

/// Result of one request.
struct StepResult {
    sample: Sample,
    goose_us: Option<u64>,
    checked: CheckedStep,
}

/// Transaction of a step.
async fn run_step(user: &mut GooseUser, shared: &Arc<JourneyShared>, index: usize) -> TransactionResult {
    let mut state = take_state(user, shared);
    if index == 0 {
        match next_ticket(&state.waiter, shared).await {
            Some(ticket) => state.active = Some(begin(shared, ticket)),
            None => return end(user, shared, state),
        }
    }
    // Without a journey it has failed, or the user has ended.
    if let Some(mut active) = state.active.take() {
        let Some(clock) = shared.open_loop.users.clock() else {
            return end(user, shared, state);
        };
        let result = request(user, shared, clock, index, &active).await;
        let sample = result.sample;
        state.done.steps[index].push(StepSample {
            sample,
            journey_due_us: active.ticket.due_us,
        });
        active.first_sent_us.get_or_insert(sample.sent_us);
        active.goose_us = active.goose_us.zip(result.goose_us).map(|(sum, us)| sum + us);
        if let Outcome::Failed(failure) = sample.outcome {
            let message = result.checked.reply.message.unwrap_or_else(|| failure.to_string());
            shared.examples[index].note(failure, message);
        }
        if sample.is_ok() && index + 1 < shared.step.steps.len() {
            active.due_us = sample.done_us;
            for (slot, value) in result.checked.values {
                active.values[slot] = Some(value);
            }
            state.active = Some(active);
        } else {
            state.done.journeys.push(finish_journey(shared, &active, sample, index));
        }
    }
    user.set_session_data(state);
    Ok(())
}

/// Takes the user's state, or creates it at the first transaction.
fn take_state(user: &mut GooseUser, shared: &JourneyShared) -> JourneyState {
    if let Some(state) = user.get_session_data_mut::<JourneyState>() {
        return std::mem::take(state);
    }
    if let Some(client) = &shared.client {
        user.client = client.client.clone();
    }
    shared.open_loop.users.ready.add_permits(1);
    let steps = vec![Vec::new(); shared.step.steps.len()];
    JourneyState {
        done: EndedJourneys {
            steps,
            ..EndedJourneys::default()
        },
        ..JourneyState::default()
    }
}

/// Returns the next ticket; `None` after the last.
async fn next_ticket(waiter: &Arc<Waiter>, shared: &JourneyShared) -> Option<Ticket> {
    let taker: Arc<dyn TicketTaker> = Arc::<Waiter>::clone(waiter);
    let mut next = shared.open_loop.tickets.next(&taker);
    while next == Next::Queued {
        waiter.notify.notified().await;
        next = lock(&waiter.assigned).take().unwrap_or(Next::Queued);
    }
    match next {
        Next::Ticket(ticket) => Some(ticket),
        Next::Queued | Next::Closed => None,
    }
}

fn begin(shared: &JourneyShared, ticket: Ticket) -> ActiveJourney {
    let mut values = vec![None; shared.step.values];
    let entities = &shared.step.entities;
    if let (Some(first), false) = (values.first_mut(), entities.is_empty()) {
        let entity = entities[ticket.index % entities.len()];
        *first = Some(Value::of(&entity.into()));
    }
    ActiveJourney {
        ticket,
        due_us: ticket.due_us,
        first_sent_us: None,
        goose_us: Some(0),
        values,
    }
}

/// Ends a journey, at its last or its failed step.
fn finish_journey(shared: &JourneyShared, active: &ActiveJourney, last: Sample, index: usize) -> JourneySample {
    shared.open_loop.tickets.finish();
    let sample = Sample {
        due_us: active.ticket.due_us,
        sent_us: active.first_sent_us.unwrap_or(last.sent_us),
        done_us: last.done_us,
        outcome: last.outcome,
        timings: None,
    };
    let in_window = shared.step.schedule.in_window(sample.due_us);
    shared.step.watch.record(&sample, in_window);
    JourneySample {
        sample,
        failed_at: (!last.is_ok()).then_some(index),
        goose_us: active.goose_us,
    }
}

/// Sends one step's request, unless the drain limit has passed; reads and checks its reply.
async fn request(
    user: &mut GooseUser,
    shared: &Arc<JourneyShared>,
    clock: Clock,
    index: usize,
    active: &ActiveJourney,
) -> StepResult {
    let step = &shared.step.steps[index];
    let built = step.request(|path| shared.url(path), &active.values);
    let sent_us = clock.now_us();
    let result = |checked: CheckedStep, done_us: u64, goose_us: Option<u64>| StepResult {
        sample: Sample {
            due_us: active.due_us,
            sent_us,
            done_us,
            outcome: checked.reply.outcome,
            timings: checked.reply.timings,
        },
        goose_us,
        checked,
    };
    let failed = |missing: NoReply, done_us: u64| result(CheckedReply::from(missing).into(), done_us, None);
    if sent_us >= shared.open_loop.drain_end_us {
        return failed(Failure::DrainLimit.into(), sent_us);
    }
    let built = match built {
        Ok(built) => built,
        // A value from an earlier reply cannot be sent.
        Err(what) => return failed(NoReply::new(Failure::WrongReply, what), sent_us),
    };
    let sending = async {
        match built {
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
    let checked: CheckedStep = match sent.reply {
        Err(missing) => CheckedReply::from(missing).into(),
        Ok(reply) => check_reply(reply, shared, index).await,
    };
    result(checked, done_us, sent.goose_us)
}

async fn check_reply(reply: Reply, shared: &Arc<JourneyShared>, index: usize) -> CheckedStep {
    if reply.len() <= CHECKED_AT_ONCE_BYTES {
        return shared.step.steps[index].check(&reply);
    }
    // Large replies are checked on another thread, because other users wait for this one.
    let steps = Arc::clone(&shared.step.steps);
    let checking = tokio::task::spawn_blocking(move || steps[index].check(&reply));
    let checked = checking.await;
    checked.unwrap_or_else(|error| CheckedReply::invalid(&error, None).into())
}

/// Delivers the results, and lets goose end the user after this round of transactions.
fn end(user: &mut GooseUser, shared: &JourneyShared, mut state: JourneyState) -> TransactionResult {
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
