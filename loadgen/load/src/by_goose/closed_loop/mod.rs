//! Closed loop: goose in its usual way. In: users, their think time, bodies and an address. Out: a sample for each
//! request from its actual send to its last byte, the users' pauses, and the times of goose's own clock.
//!
//! goose's loop runs one transaction per request, its client sends, its metrics count, and its users end by themselves.
//! goose's metrics also get each request's time to the last byte, because goose's own clock stops at the headers. A
//! closed loop does not show the waits of requests that were never sent: while the server stalls, its users stall with
//! it. Knows nothing of percentiles.

#[cfg(feature = "goose")]
mod run;

#[cfg(feature = "goose")]
pub use run::run;

use crate::by_goose::client::ServerClient;
use crate::driver::{DriverError, Examples, Finished, HttpRoute, Route, Users};
use crate::grpc::Connections;
use crate::live::Watch;
use crate::payload::Body;
use crate::reply::{Expected, Limit};
use crate::schedule::{Schedule, micros};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tierlab_analysis::record::{ClosedLoopFigures, Sample};
use tokio::sync::watch;

/// Result of a closed loop.
#[derive(Debug)]
pub struct ClosedLoopRun {
    /// Samples, due at their send times.
    pub finished: Finished,
    /// Send times as a schedule.
    pub schedule: Schedule,
    /// Terms of the interactive response time law.
    pub figures: ClosedLoopFigures,
    /// goose's own times of the requests sent in the window, in microseconds.
    pub goose_us: Vec<u64>,
    /// Requests that goose's own metrics counted, warm-up included.
    pub goose_counted: u64,
}

/// Refuses a closed loop.
///
/// # Errors
/// [`DriverError::NoGoose`].
#[cfg(not(feature = "goose"))]
pub async fn run(_: ClosedLoop, _: &crate::interrupt::Interrupt) -> Result<Option<ClosedLoopRun>, DriverError> {
    Err(DriverError::NoGoose)
}

/// Name of times to the last byte in goose's metrics.
const LAST_BYTE: &str = "LAST-BYTE";

/// One step of a closed loop.
#[derive(Debug, Clone)]
pub struct ClosedLoop {
    /// Route to the server.
    pub route: Route,
    /// Bodies, sent in turn by the next free user.
    pub bodies: Arc<Vec<Body>>,
    /// Expectation for every reply.
    pub expected: Arc<Expected>,
    /// Maximum length of a reply.
    pub limit: Limit,
    /// Number of users, and maximum requests in flight.
    pub users: usize,
    /// Think time between a reply and the user's next request.
    pub think: Think,
    /// Seed of think times.
    pub seed: u64,
    /// Length of the warm-up, which is cut off.
    pub warmup: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Time limit of the client for one request.
    pub timeout: Duration,
    /// Live view of the step.
    pub watch: Watch,
}

/// One request of a user.
#[derive(Debug, Clone, Copy)]
struct Cycle {
    sample: Sample,
    /// Pause since the user's last reply; `None` for its first request.
    pause_us: Option<u64>,
    /// Think time set by the plan.
    think_us: u64,
    goose_us: Option<u64>,
}

/// State shared by the users of a step.
struct LoopShared {
    step: ClosedLoop,
    transport: Transport,
    think_times_us: Vec<u64>,
    users: Users,
    started: watch::Sender<bool>,
    window_start_us: u64,
    window_end_us: u64,
    next_body: AtomicUsize,
    next_user: AtomicUsize,
    stopped: AtomicBool,
    /// Cycles of all users; locked once per user, at its end.
    cycles: Mutex<Vec<Cycle>>,
    examples: Examples,
}

impl LoopShared {
    fn new(step: ClosedLoop) -> Result<Self, DriverError> {
        let window_start_us = micros(step.warmup);
        Ok(Self {
            transport: Transport::new(&step.route, step.timeout)?,
            think_times_us: step.think.draw(step.seed),
            users: Users::new(step.users),
            started: watch::channel(false).0,
            window_start_us,
            window_end_us: window_start_us + micros(step.window),
            next_body: AtomicUsize::new(0),
            next_user: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            cycles: Mutex::default(),
            examples: Examples::default(),
            step,
        })
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the next body, and the expectation for its reply.
    fn next(&self) -> (&Body, &Arc<Expected>) {
        let index = self.next_body.fetch_add(1, Ordering::Relaxed);
        let body = &self.step.bodies[index % self.step.bodies.len()];
        (body, body.expected(index, &self.step.expected))
    }

    fn in_window(&self, us: u64) -> bool {
        (self.window_start_us..self.window_end_us).contains(&us)
    }
}

/// Prepared [`Route`].
enum Transport {
    Http(Box<Http>),
    Grpc(Arc<Connections>, Duration),
}

/// Route over HTTP, with the parts common to all requests.
struct Http {
    client: ServerClient,
    url: Url,
    headers: HeaderMap,
    route: HttpRoute,
}

impl Transport {
    fn new(route: &Route, timeout: Duration) -> Result<Self, DriverError> {
        let route = match route.clone() {
            Route::Grpc(connections) => return Ok(Self::Grpc(connections, timeout)),
            Route::Http(route) => route,
        };
        let client = ServerClient::new(&route.endpoint, timeout)?;
        Ok(Self::Http(Box::new(Http {
            url: client.url(route.path())?,
            client,
            headers: route.endpoint.request_headers(),
            route,
        })))
    }
}

const THINK_STREAM: u64 = 3;
/// Pauses of a step; users take them in turn, repeatedly.
const THINK_TIMES: usize = 8_192;

/// Distribution of the think times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, strum::Display)]
pub enum Think {
    /// Constant; 0 is no pause.
    #[strum(to_string = "{0} ms")]
    Fixed(f64),
    /// Uniform between two limits.
    #[strum(to_string = "{least_ms} to {most_ms} ms")]
    Uniform {
        /// Shortest pause.
        least_ms: f64,
        /// Longest pause.
        most_ms: f64,
    },
    /// Exponential, as for independent people.
    #[strum(to_string = "exponential of mean {mean_ms} ms")]
    Exponential {
        /// Mean pause.
        mean_ms: f64,
    },
}

impl Think {
    /// Draws pauses in microseconds; the same seed gives the same pauses.
    pub fn draw(&self, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(THINK_STREAM);
        (0..THINK_TIMES)
            .map(|_| match *self {
                Self::Fixed(ms) => ms,
                Self::Uniform { least_ms, most_ms } => least_ms + (most_ms - least_ms) * rng.random_range(0.0..1.0),
                Self::Exponential { mean_ms } => mean_ms * Distribution::<f64>::sample(&Exp1, &mut rng),
            })
            .map(|ms| (ms * 1e3).round() as u64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(think: Think) -> f64 {
        let drawn = think.draw(7);
        drawn.iter().sum::<u64>() as f64 / drawn.len() as f64 / 1e3
    }

    #[test]
    fn pauses_have_their_laws_mean_and_their_seeds_order() {
        assert_eq!(Think::Fixed(1.5).draw(1), [1_500; THINK_TIMES]);
        let uniform = Think::Uniform {
            least_ms: 10.0,
            most_ms: 30.0,
        };
        assert!(uniform.draw(3).iter().all(|us| (10_000..=30_000).contains(us)));
        // Four standard errors: 5.8 ms and 50 ms over the root of the number of draws.
        assert!((mean_ms(uniform) - 20.0).abs() < 0.26, "{}", mean_ms(uniform));
        let exponential = Think::Exponential { mean_ms: 50.0 };
        assert!((mean_ms(exponential) - 50.0).abs() < 2.3, "{}", mean_ms(exponential));
        assert_eq!(exponential.draw(4), exponential.draw(4));
        assert_ne!(exponential.draw(4), exponential.draw(5));
    }
}
