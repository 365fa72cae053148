//! One user: at most one request in flight. In: tickets from the pacer. Out: a sample for each.
//!
//! If the user's connection is open, the pacer writes a small request itself, on its own thread: its send lag is then
//! the pacer's own, and the user's task wakes up only for the reply. The user's task does everything that takes longer
//! (a new connection, a large body, gRPC with its shared connections, a ticket that was waiting).
//!
//! A time limit needs no timer per request: the task's one alarm is set to the limit of an earlier request, and reset
//! when it fires. It is never later than the limit of the request in flight.

use super::http::{self, HttpConnection};
use super::open_loop::{Examples, OpenLoop};
use super::wire::SendTime;
use super::{KeptRequest, Route, Step};
use crate::grpc::{self, Connections, HANDSHAKES};
use crate::lock;
use crate::pacer::Clock;
use crate::payload::Body;
use crate::reply::{CHECKED_AT_ONCE_BYTES, CheckedReply, Expected, Limit, NoReply};
use crate::schedule::micros;
use crate::tickets::{Next, Ticket, TicketTaker};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tierlab_analysis::record::{Failure, Outcome, Sample, StreamSample};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Sleep;

/// Maximum size of a body that the pacer writes; copying it takes about as long as the rest of the send.
const PACED_BYTES: usize = 16 << 10;
/// Time of an alarm that is not set.
const NEVER: u64 = u64::MAX;

/// User, shared by its task and the pacer.
pub(super) struct User {
    shared: Arc<Shared>,
    runtime: Handle,
    state: Mutex<UserState>,
}

/// State of a user.
struct UserState {
    activity: Activity,
    /// Connections, one to each server.
    connections: Vec<Option<Box<HttpConnection>>>,
    send_time: Arc<SendTime>,
    /// Waker of the user's task.
    waker: Waker,
    /// Time of the alarm, on the step's clock.
    alarm_us: u64,
}

enum Activity {
    Idle,
    /// Ticket that the task has to begin.
    Assigned(Ticket),
    Waiting(CallInFlight),
    /// No more tickets.
    Ended,
}

/// Request in flight.
struct CallInFlight {
    ticket: Ticket,
    /// Time limit of the request.
    limit_us: u64,
    exchange: Exchange,
}

/// Future from the first byte sent to the last byte received.
type Exchange = Pin<Box<dyn Future<Output = Exchanged> + Send>>;

/// Reply, and the connection if it can be reused.
type Exchanged = (Result<Reply, NoReply>, Option<Box<HttpConnection>>);

/// Completed request, whose reply is not checked yet.
struct Completed {
    ticket: Ticket,
    sent_us: u64,
    done_us: u64,
    first_byte_us: Option<u64>,
    reply: Result<Reply, NoReply>,
}

impl Client {
    fn exchange(&self, body: &Body, connection: Option<Box<HttpConnection>>, send_time: &Arc<SendTime>) -> Exchange {
        match self {
            Self::Http(target) => {
                let is_single_use = target.is_single_use;
                let exchange = http::exchange(Arc::clone(target), body.clone(), connection, Arc::clone(send_time));
                Box::pin(async move {
                    let (reply, connection) = exchange.await;
                    (reply.map(Reply::Http), connection.filter(|_| !is_single_use))
                })
            }
            Self::Http2(target, connections) => {
                send_time.set();
                let (target, connections, body) = (Arc::clone(target), Arc::clone(connections), body.clone());
                Box::pin(async move {
                    let reply = http::exchange_over_http2(&target, &body, &connections).await;
                    (reply.map(Reply::Http), None)
                })
            }
            Self::Grpc(connections, limit) => {
                send_time.set();
                let (connections, message, limit) = (Arc::clone(connections), body.bytes.clone(), limit.clone());
                Box::pin(async move { (connections.call(message, &limit).await.map(Reply::Grpc), None) })
            }
        }
    }
}

impl TicketTaker for User {
    fn assign(self: Arc<Self>, ticket: Ticket) {
        let Some(clock) = self.shared.open_loop.users.clock() else {
            return;
        };
        let mut state = self.state();
        // On the pacer's thread: the first poll writes a small request at its due time; anything longer is left to the user's task.
        let is_small = self.shared.body(ticket).bytes.len() <= PACED_BYTES;
        let connection = state.connections[self.shared.server(ticket)].as_mut();
        let is_open = is_small && connection.is_some_and(|connection| connection.make_ready());
        if !is_open || clock.now_us() >= self.shared.open_loop.drain_end_us {
            state.activity = Activity::Assigned(ticket);
            return state.waker.wake_by_ref();
        }
        let mut call = self.begin(&mut state, ticket, clock);
        // If the connection turns out to be closed, another is opened.
        let _runtime = self.runtime.enter();
        let polled = call.exchange.as_mut().poll(&mut Context::from_waker(&state.waker));
        let is_over = polled.is_ready();
        if let Poll::Ready(ended) = polled {
            call.exchange = Box::pin(std::future::ready(ended));
        }
        if is_over || call.limit_us < state.alarm_us {
            state.waker.wake_by_ref();
        }
        state.activity = Activity::Waiting(call);
    }

    fn end(&self) {
        let mut state = self.state();
        state.activity = Activity::Ended;
        state.waker.wake_by_ref();
    }
}

impl User {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let connections = shared.clients.iter().map(|_| None).collect();
        Self {
            shared,
            runtime: Handle::current(),
            state: Mutex::new(UserState {
                activity: Activity::Idle,
                connections,
                send_time: Arc::default(),
                waker: Waker::noop().clone(),
                alarm_us: NEVER,
            }),
        }
    }

    /// Opens the connections of the first requests before the clock starts, if that costs a handshake or the step
    /// requires it. A request retries a failed connection, and reports its error.
    pub(super) async fn warm(&self) {
        self.shared.warm().await;
        for (server, client) in self.shared.clients.iter().enumerate() {
            let Client::Http(target) = client else { continue };
            let is_early =
                target.route.endpoint.address.secure || self.shared.step.sending.connections.fixed().is_some();
            if !is_early || target.is_single_use {
                continue;
            }
            let send_time = Arc::clone(&self.state().send_time);
            let Ok(_permit) = self.shared.handshakes.acquire().await else {
                return;
            };
            if let Ok(connection) = HttpConnection::open(target, send_time).await {
                self.state().connections[server] = Some(connection);
            }
        }
    }

    /// Runs the user; returns its samples of the step.
    pub(super) async fn serve(self: Arc<Self>) -> Vec<Sample> {
        let taker: Arc<dyn TicketTaker> = self.clone();
        let mut samples = Vec::with_capacity(64);
        let mut alarm = pin!(tokio::time::sleep_until(Instant::now().into()));
        loop {
            match self.shared.open_loop.tickets.next(&taker) {
                Next::Ticket(ticket) => self.state().activity = Activity::Assigned(ticket),
                Next::Queued => {}
                Next::Closed => return samples,
            }
            match poll_fn(|cx| self.poll(alarm.as_mut(), cx)).await {
                Some(completed) => samples.push(self.check(completed).await),
                None => return samples,
            }
        }
    }

    /// Polls for the end of the next request; `None` after the last.
    fn poll(&self, alarm: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Option<Completed>> {
        let mut guard = self.state();
        let state = &mut *guard;
        state.waker.clone_from(cx.waker());
        if matches!(state.activity, Activity::Ended) {
            return Poll::Ready(None);
        }
        // Set before the pacer's start, and so before the first ticket.
        let Some(clock) = self.shared.open_loop.users.clock() else {
            return Poll::Pending;
        };
        if let Activity::Assigned(ticket) = state.activity {
            if clock.now_us() >= self.shared.open_loop.drain_end_us {
                state.activity = Activity::Idle;
                let now_us = clock.now_us();
                return Poll::Ready(Some(Completed {
                    ticket,
                    sent_us: now_us,
                    done_us: now_us,
                    first_byte_us: None,
                    reply: Err(Failure::DrainLimit.into()),
                }));
            }
            state.activity = Activity::Waiting(self.begin(state, ticket, clock));
        }
        let ended = match &mut state.activity {
            Activity::Waiting(call) => match call.exchange.as_mut().poll(cx) {
                Poll::Ready(ended) => Some(ended),
                Poll::Pending if state.is_late(alarm, clock, cx) => None,
                Poll::Pending => return Poll::Pending,
            },
            Activity::Idle | Activity::Assigned(_) | Activity::Ended => {
                for connection in &mut state.connections {
                    connection.take_if(|connection| connection.is_closed(cx));
                }
                state.is_late(alarm, clock, cx);
                return Poll::Pending;
            }
        };
        let done_us = clock.now_us();
        let Activity::Waiting(call) = std::mem::replace(&mut state.activity, Activity::Idle) else {
            return Poll::Pending;
        };
        // An unsent request is abandoned now.
        let sent_us = state.send_time.sent_us().unwrap_or(done_us);
        let reply = match ended {
            Some((reply, connection)) => {
                state.connections[self.shared.server(call.ticket)] = connection;
                reply
            }
            None if call.limit_us < self.shared.open_loop.drain_end_us => Err(Failure::Timeout.into()),
            None => Err(Failure::DrainLimit.into()),
        };
        Poll::Ready(Some(Completed {
            ticket: call.ticket,
            sent_us,
            done_us,
            first_byte_us: state.send_time.first_byte_us(),
            reply,
        }))
    }

    fn begin(&self, state: &mut UserState, ticket: Ticket, clock: Clock) -> CallInFlight {
        let send_time = &state.send_time;
        send_time.begin(clock);
        let step = &self.shared.step;
        let server = self.shared.server(ticket);
        let connection = state.connections[server].take();
        let connection = connection.filter(|connection| !connection.ended);
        let limit_us = clock.now_us() + micros(step.timeout);
        CallInFlight {
            ticket,
            limit_us: limit_us.min(self.shared.open_loop.drain_end_us),
            exchange: self.shared.clients[server].exchange(self.shared.body(ticket), connection, send_time),
        }
    }

    /// Checks the reply and creates a sample. All its times were read before, so this work adds to no latency.
    async fn check(&self, completed: Completed) -> Sample {
        self.shared.open_loop.tickets.finish();
        let step = &self.shared.step;
        let body = self.shared.body(completed.ticket);
        let expected = body.expected(completed.ticket.index, &step.expected);
        let reply = completed.reply.as_ref().ok();
        let (status, reply_bytes) = reply.map(|reply| (reply.status(), reply.len())).unzip();
        let checked = check_reply(completed.reply, expected).await;
        if let (Outcome::Failed(failure), Some(message)) = (checked.outcome, checked.message) {
            self.shared.examples.note(failure, message);
        }
        let sample = Sample {
            due_us: completed.ticket.due_us,
            sent_us: completed.sent_us,
            done_us: completed.done_us,
            outcome: checked.outcome,
            timings: checked.timings,
        };
        if let Some(reply) = checked.stream {
            lock(&self.shared.streams).push(StreamSample { sample, reply: *reply });
        }
        if step.sending.keep_requests {
            lock(&self.shared.recorded).push(KeptRequest {
                index: completed.ticket.index,
                sample,
                first_byte_us: completed.first_byte_us,
                status,
                reply_bytes,
            });
        }
        step.watch.record(&sample, step.schedule.in_window(sample.due_us));
        sample
    }

    fn state(&self) -> MutexGuard<'_, UserState> {
        lock(&self.state)
    }
}

impl UserState {
    /// True if the request in flight is past its limit; otherwise sets the alarm no later than the limit.
    fn is_late(&mut self, mut alarm: Pin<&mut Sleep>, clock: Clock, cx: &mut Context<'_>) -> bool {
        let limit_us = match &self.activity {
            Activity::Waiting(call) => call.limit_us,
            Activity::Idle | Activity::Assigned(_) | Activity::Ended => NEVER,
        };
        loop {
            if limit_us < self.alarm_us {
                self.alarm_us = limit_us;
                alarm.as_mut().reset(clock.at(limit_us).into());
            }
            if self.alarm_us == NEVER || alarm.as_mut().poll(cx).is_pending() {
                return false;
            }
            // The alarm fired, possibly for an earlier request.
            self.alarm_us = NEVER;
            if limit_us <= clock.now_us() {
                return true;
            }
        }
    }
}

/// State shared by the users of a step.
pub(super) struct Shared {
    pub(super) step: Step,
    /// Clients, one for each server.
    pub(super) clients: Vec<Client>,
    pub(super) open_loop: OpenLoop,
    /// Limit on concurrent handshakes before the clock starts.
    pub(super) handshakes: Semaphore,
    /// Samples of all users; locked once per user, at its end.
    pub(super) samples: Mutex<Vec<Sample>>,
    /// Good replies that streamed; locked once per reply, after its times were read.
    pub(super) streams: Mutex<Vec<StreamSample>>,
    /// Requests on record; locked once per request, after its times were read.
    pub(super) recorded: Mutex<Vec<KeptRequest>>,
    pub(super) examples: Examples,
}

/// Prepared [`Route`].
pub(super) enum Client {
    Http(Arc<http::Target>),
    Http2(Arc<http::Target>, Arc<Connections>),
    Grpc(Arc<Connections>, Limit),
}

impl Client {
    fn new(route: &Route, step: &Step) -> Self {
        let limit = step.limit.clone();
        match route {
            Route::Http(route) => {
                let target = Arc::new(http::Target::new(route, limit, step.sending));
                match &route.http2 {
                    Some(connections) => Self::Http2(target, Arc::clone(connections)),
                    None => Self::Http(target),
                }
            }
            Route::Grpc(connections) => Self::Grpc(Arc::clone(connections), limit),
        }
    }
}

impl Shared {
    pub(super) fn new(step: Step) -> Self {
        // Allocated before the clock starts.
        let requests = step.schedule.due_us.len();
        let recorded = if step.sending.keep_requests { requests } else { 0 };
        Self {
            clients: step.routes.iter().map(|route| Client::new(route, &step)).collect(),
            open_loop: OpenLoop::new(&step.schedule, step.users, step.drain, &step.watch),
            handshakes: Semaphore::new(HANDSHAKES),
            samples: Mutex::new(Vec::new()),
            streams: Mutex::default(),
            recorded: Mutex::new(Vec::with_capacity(recorded)),
            examples: Examples::default(),
            step,
        }
    }

    /// Opens the connections that users share.
    pub(super) async fn warm(&self) {
        for client in &self.clients {
            if let Client::Grpc(connections, _) | Client::Http2(_, connections) = client {
                connections.warm(self.step.sending.connections.fixed().is_some()).await;
            }
        }
    }

    /// Returns the index of the server for a request.
    pub(super) fn server(&self, ticket: Ticket) -> usize {
        ticket.index % self.clients.len()
    }

    pub(super) fn body(&self, ticket: Ticket) -> &Body {
        &self.step.bodies[ticket.index % self.step.bodies.len()]
    }
}

/// Complete reply, not checked yet.
pub(crate) enum Reply {
    Http(http::HttpReply),
    Grpc(grpc::GrpcReply),
}

impl Reply {
    /// Checks that it is a reply of the model.
    pub(crate) fn check(&self, expected: &Expected) -> CheckedReply {
        match self {
            Self::Http(reply) => reply.check(expected),
            Self::Grpc(reply) => reply.check(expected),
        }
    }

    /// HTTP status.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Http(reply) => reply.status.as_u16(),
            Self::Grpc(reply) => reply.status.as_u16(),
        }
    }

    /// Length of the body in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Http(reply) => reply.len(),
            Self::Grpc(reply) => reply.len(),
        }
    }
}

/// Returns the result of a request. Large replies are checked on another thread, because other requests wait for this
/// one.
pub(crate) async fn check_reply(reply: Result<Reply, NoReply>, expected: &Arc<Expected>) -> CheckedReply {
    match reply {
        Err(missing) => missing.into(),
        Ok(reply) if reply.len() <= CHECKED_AT_ONCE_BYTES => reply.check(expected),
        Ok(reply) => {
            let expected = Arc::clone(expected);
            let task = tokio::task::spawn_blocking(move || reply.check(&expected));
            task.await.unwrap_or_else(|error| CheckedReply::invalid(&error, None))
        }
    }
}
