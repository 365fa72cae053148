//! One step against one server. In: a schedule, bodies and an address. Out: one sample per ticket, unsorted.
//!
//! goose brings the population of users and their HTTP client. Its throttle, its metrics and its own clock are not used:
//! a user is one transaction that takes tickets until there are none, and every request's times are read here, on the
//! step's clock, with the end at the last byte of the body. Knows nothing of percentiles.

use crate::grpc::{self, Connections};
use crate::interrupt::Interrupt;
use crate::live::Watch;
use crate::pacer::{self, Clock, Observed, Ticket, Tickets};
use crate::payload::Body;
use crate::record::{Failure, Outcome, Sample};
use crate::schedule::Schedule;
use bytes::Bytes;
use goose::config::GooseConfiguration;
use goose::goose::{GooseUser, Scenario, Transaction, TransactionFunction, TransactionResult};
use goose::{GooseAttack, GooseError, client::GooseClientBuilder};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tierlab_protocol::infer::HEADER_LENGTH;
use tierlab_protocol::timing::StageTimings;
use tokio::sync::Semaphore;

/// Between the last user's start and the step's zero.
const LEAD: Duration = Duration::from_millis(10);
/// How long goose may take to start its users.
const START_LIMIT: Duration = Duration::from_secs(30);
/// After the drain limit, how long users may take to notice.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Where requests are sent, and how.
    pub route: Route,
    /// When.
    pub schedule: Arc<Schedule>,
    /// What, sent in turn.
    pub bodies: Arc<Vec<Body>>,
    /// The most in flight.
    pub users: usize,
    /// The client's limit for one request, from its actual send.
    pub timeout: Duration,
    /// How long replies may come in after the window.
    pub drain: Duration,
    /// Who is told of it while it runs.
    pub watch: Watch,
}

/// A way to the server.
#[derive(Debug, Clone)]
pub enum Route {
    /// HTTP/1.1: the model's infer route, over goose's client.
    Http(Url),
    /// gRPC.
    Grpc(Arc<Connections>),
}

/// What a step left behind.
#[derive(Debug)]
pub struct Finished {
    /// One per ticket of the schedule, warm-up included, in no order.
    pub samples: Vec<Sample>,
    /// What the pacer saw.
    pub observed: Observed,
    /// When the measured window began.
    pub window_began: SystemTime,
}

/// A step that could not be run; a server that does not answer is no such thing, its requests fail one by one.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// goose refused.
    #[error("goose could not run the step: {0}")]
    Goose(Box<GooseError>),
    /// The pacer's thread.
    #[error("the pacer's thread failed: {0}")]
    Pacer(std::io::Error),
    /// Users that did not come up, or did not end.
    #[error("{0} of {1} goose users {2}")]
    Users(usize, usize, &'static str),
}

impl Step {
    /// The part of a step that one of `of` load processes sends: every `of`-th request, from the `number`-th on, with as
    /// many of the users.
    #[must_use]
    pub fn share(self, number: usize, of: usize) -> Self {
        let requests = self.schedule.due_us.len();
        let bodies = (number..requests)
            .step_by(of)
            .map(|i| self.bodies[i % self.bodies.len()].clone());
        Self {
            bodies: Arc::new(bodies.collect()),
            schedule: Arc::new(self.schedule.share(number, of)),
            users: self.users.div_ceil(of),
            ..self
        }
    }
}

/// Runs a step; `None` when it was interrupted.
///
/// # Errors
/// See [`DriverError`].
pub async fn run(step: Step, interrupt: &Interrupt) -> Result<Option<Finished>, DriverError> {
    run_from(step, async { Ok(Instant::now() + LEAD) }, interrupt).await
}

/// Runs a step whose clock starts when `start`, asked once every user is up, says; `None` when it was interrupted.
///
/// # Errors
/// See [`DriverError`]; also that of `start`.
pub async fn run_from<E: From<DriverError>>(
    step: Step,
    start: impl Future<Output = Result<Instant, E>>,
    interrupt: &Interrupt,
) -> Result<Option<Finished>, E> {
    let users = step.users;
    let shared = Arc::new(Shared::new(step));
    // Dropped, not awaited, once every user has delivered: goose looks for finished users twice a second only.
    let attack = Box::pin(attack(&shared)?.execute());
    tokio::select! {
        finished = conduct(&shared, users, start) => finished.map(Some),
        ended = attack => Err(E::from(match ended {
            Err(error) => DriverError::Goose(Box::new(error)),
            Ok(_) => DriverError::Users(users - shared.delivered.available_permits(), users, "ended before the step"),
        })),
        () = interrupt.raised() => {
            shared.tickets.stop();
            Ok(None)
        }
    }
}

/// Waits for the users, starts the pacer, and collects what the users deliver.
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
    })
}

async fn wait_for_all(
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

/// What the users of a step share.
struct Shared {
    step: Step,
    tickets: Arc<Tickets>,
    clock: OnceLock<Clock>,
    drain_end_us: u64,
    ready: Semaphore,
    delivered: Semaphore,
    /// Taken once per user, at its end.
    samples: Mutex<Vec<Sample>>,
}

impl Shared {
    fn new(step: Step) -> Self {
        Self {
            tickets: Arc::new(Tickets::new(Arc::clone(&step.schedule), step.users)),
            clock: OnceLock::new(),
            drain_end_us: step.schedule.window_end_us + u64::try_from(step.drain.as_micros()).unwrap_or(u64::MAX / 2),
            ready: Semaphore::new(0),
            delivered: Semaphore::new(0),
            samples: Mutex::new(Vec::new()),
            step,
        }
    }

    /// A goose user's whole life.
    async fn serve(&self, client: &Client) {
        let mut samples = Vec::with_capacity(self.step.schedule.due_us.len() / self.step.users + 16);
        self.ready.add_permits(1);
        while let Some(ticket) = self.tickets.take().await {
            // Set before the pacer's start, and so before the first ticket.
            let Some(&clock) = self.clock.get() else { break };
            samples.push(self.send(client, clock, ticket).await);
        }
        self.samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&mut samples);
        self.delivered.add_permits(1);
    }

    async fn send(&self, client: &Client, clock: Clock, ticket: Ticket) -> Sample {
        let body = &self.step.bodies[ticket.index % self.step.bodies.len()];
        let exchange = self.step.route.prepare(client, body);
        let sent_us = clock.now_us();
        let timeout_us = sent_us + u64::try_from(self.step.timeout.as_micros()).unwrap_or(u64::MAX / 2);
        let deadline = clock.at(timeout_us.min(self.drain_end_us));
        let reply = if sent_us < self.drain_end_us {
            tokio::time::timeout_at(deadline.into(), exchange.run()).await.ok()
        } else {
            None
        };
        let done_us = clock.now_us();
        self.tickets.finish();
        let (outcome, timings) = match reply {
            Some(Ok(Answered::Http(reply))) => judge(&reply),
            Some(Ok(Answered::Grpc(reply))) => reply.judge(),
            Some(Err(failure)) => (Outcome::Failed(failure), None),
            None if timeout_us < self.drain_end_us => (Outcome::Failed(Failure::Timeout), None),
            None => (Outcome::Failed(Failure::DrainLimit), None),
        };
        let sample = Sample {
            due_us: ticket.due_us,
            sent_us,
            done_us,
            outcome,
            timings,
        };
        let in_window = self.step.schedule.in_window(sample.due_us);
        self.step.watch.over(&sample, in_window);
        sample
    }
}

/// A request made ready before its clock starts.
enum Exchange<'a> {
    Http(Box<reqwest::RequestBuilder>),
    Grpc(&'a Connections, Bytes),
}

/// A reply read to its last byte, and not looked at yet.
enum Answered {
    Http(Reply),
    Grpc(grpc::Reply),
}

impl Route {
    fn prepare(&self, client: &Client, body: &Body) -> Exchange<'_> {
        match self {
            Self::Http(url) => {
                let request = client.post(url.clone()).headers(headers(body));
                Exchange::Http(Box::new(request.body(body.bytes.clone())))
            }
            Self::Grpc(connections) => Exchange::Grpc(connections, body.bytes.clone()),
        }
    }

    /// The server's address, for goose, which wants one.
    fn host(&self) -> String {
        match self {
            Self::Http(url) => url.origin().ascii_serialization(),
            Self::Grpc(connections) => format!("http://{}", connections.authority()),
        }
    }
}

impl Exchange<'_> {
    async fn run(self) -> Result<Answered, Failure> {
        match self {
            Self::Http(request) => match exchange(*request).await {
                Ok(reply) => Ok(Answered::Http(reply)),
                Err(error) => Err(failure(&error)),
            },
            Self::Grpc(connections, message) => connections.call(message).await.map(Answered::Grpc),
        }
    }
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn exchange(request: reqwest::RequestBuilder) -> Result<Reply, reqwest::Error> {
    let response = request.send().await?;
    Ok(Reply {
        status: response.status(),
        headers: response.headers().clone(),
        body: response.bytes().await?,
    })
}

/// The headers of an infer request with this body.
#[must_use]
pub fn headers(body: &Body) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(2);
    if let Some(json_len) = body.json_len {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(json_len));
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers
}

/// Looks at status and frame only: every tensor of every reply would cost the machine what is to be measured. What a
/// reply says is checked once for each server, before its first step.
fn judge(reply: &Reply) -> (Outcome, Option<StageTimings>) {
    let timings = reply
        .headers
        .get("server-timing")
        .and_then(|value| StageTimings::parse_header(value.to_str().ok()?).ok());
    let json_len = match reply.headers.get(HEADER_LENGTH) {
        None => Some(reply.body.len()),
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|value| value.parse().ok())
            .filter(|&len: &usize| len <= reply.body.len()),
    };
    let framed = json_len
        .and_then(|len| reply.body.get(..len))
        .is_some_and(|json| json.first() == Some(&b'{') && json.trim_ascii_end().last() == Some(&b'}'));
    let outcome = match reply.status {
        StatusCode::OK if framed => Outcome::Ok,
        StatusCode::OK => Outcome::Failed(Failure::BadReply),
        status => Outcome::Failed(Failure::Status(status.as_u16())),
    };
    (outcome, timings)
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_timeout() {
        Failure::Timeout
    } else if error.is_connect() {
        Failure::Connect
    } else {
        Failure::Broken
    }
}

fn attack(shared: &Arc<Shared>) -> Result<GooseAttack, DriverError> {
    let user = {
        let shared = Arc::clone(shared);
        let function: TransactionFunction = Arc::new(move |user: &mut GooseUser| {
            let shared = Arc::clone(&shared);
            // The user's own copy: with iterations in the attack's configuration goose prints a line on stdout.
            user.config.iterations = Some(1);
            Box::pin(async move {
                shared.serve(&user.client).await;
                TransactionResult::Ok(())
            })
        });
        Transaction::new(function)
    };
    let client = GooseClientBuilder::new()
        .without_cookies()
        .gzip(false)
        // Ours ends every request earlier.
        .timeout(shared.step.timeout + shared.step.drain + DELIVERY_LIMIT)
        .user_agent(concat!("tierlab-loadgen/", env!("CARGO_PKG_VERSION")));
    GooseAttack::initialize_with_config(configuration(&shared.step))
        .and_then(|attack| attack.set_client_builder_without_cookies(client))
        .map(|attack| attack.register_scenario(Scenario::new("tickets").register_transaction(user)))
        .map_err(|error| DriverError::Goose(Box::new(error)))
}

/// All users at once, and not a line of output.
fn configuration(step: &Step) -> GooseConfiguration {
    // Field by field: some are private, so that no struct expression can be written.
    let mut configuration = GooseConfiguration::default();
    configuration.host = Some(step.route.host());
    configuration.users = Some(step.users);
    configuration.increase_rate = Some("1000000".into());
    configuration.quiet = 1;
    configuration.no_metrics = true;
    configuration.no_print_metrics = true;
    configuration.no_error_summary = true;
    configuration.no_telnet = true;
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, json_len: Option<&str>, body: &'static str) -> Reply {
        let mut headers = HeaderMap::new();
        if let Some(len) = json_len {
            headers.insert(HEADER_LENGTH, len.parse().unwrap());
        }
        headers.insert("server-timing", "infer;dur=1.5, rows;desc=\"2\"".parse().unwrap());
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[test]
    fn replies_are_judged_by_status_and_frame() {
        let failed = |failure| Outcome::Failed(failure);
        for (reply, expected) in [
            (reply(200, None, "{}"), Outcome::Ok),
            (reply(200, Some("2"), "{}\u{1}\u{2}"), Outcome::Ok),
            (reply(200, None, ""), failed(Failure::BadReply)),
            (reply(200, None, "{\"cut"), failed(Failure::BadReply)),
            (reply(200, Some("9"), "{}"), failed(Failure::BadReply)),
            (reply(200, Some("x"), "{}"), failed(Failure::BadReply)),
            (reply(503, None, "{}"), failed(Failure::Status(503))),
        ] {
            assert_eq!(judge(&reply).0, expected);
        }
        assert_eq!(judge(&reply(200, None, "{}")).1.unwrap().batch_rows, 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_is_not_there_fails_every_ticket_and_the_step_ends() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let window = Duration::from_millis(300);
        let schedule = Arc::new(Schedule::new(
            &crate::plan::Arrivals::default(),
            200.0,
            Duration::ZERO,
            window,
            1,
        ));
        let step = Step {
            route: Route::Http(format!("http://{closed}/v2/models/m/infer").parse().unwrap()),
            bodies: Arc::new(vec![crate::payload::joined(&[1], crate::plan::Encoding::Json)]),
            users: 8,
            timeout: Duration::from_millis(500),
            drain: Duration::from_millis(500),
            watch: Watch::default(),
            schedule,
        };
        let finished = run(step, &Interrupt::never()).await.unwrap().unwrap();
        assert_eq!(finished.samples.len(), 60);
        assert!(
            finished
                .samples
                .iter()
                .all(|sample| sample.outcome == Outcome::Failed(Failure::Connect))
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_that_never_answers_is_a_drain_limit_with_its_age() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let window = Duration::from_millis(200);
        let schedule = Arc::new(Schedule::new(
            &crate::plan::Arrivals::constant(),
            50.0,
            Duration::ZERO,
            window,
            1,
        ));
        let step = Step {
            route: Route::Http(
                format!("http://{}/infer", silent.local_addr().unwrap())
                    .parse()
                    .unwrap(),
            ),
            bodies: Arc::new(vec![crate::payload::joined(&[1], crate::plan::Encoding::Json)]),
            users: 2,
            timeout: Duration::from_secs(60),
            drain: Duration::from_millis(200),
            watch: Watch::default(),
            schedule,
        };
        let finished = run(step, &Interrupt::never()).await.unwrap().unwrap();
        // Two are out and eight were never sent; each is there once.
        assert_eq!(finished.samples.len(), 10);
        for sample in finished.samples {
            assert_eq!(sample.outcome, Outcome::Failed(Failure::DrainLimit));
            assert!(
                sample.done_us >= 400_000 && sample.latency_us() >= 200_000,
                "{sample:?}"
            );
        }
        assert!(finished.observed.limit_hit);
    }
}
