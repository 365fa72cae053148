//! State shared by the users of a closed loop, and their results. In: a step. Out: plain data, locked where users write.
//! Independent of the transport.

use crate::by_goose::client::ServerClient;
use crate::driver::{DriverError, Examples, HttpRoute, Route, Users, micros};
use crate::grpc::Connections;
use crate::live::Watch;
use crate::payload::Body;
use crate::reply::{Expected, Limit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tierlab_analysis::record::Sample;
use tokio::sync::watch;

/// Name of times to the last byte in goose's metrics.
pub(super) const LAST_BYTE: &str = "LAST-BYTE";

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
pub(super) struct Turn {
    pub(super) sample: Sample,
    /// Pause since the user's last reply; `None` for its first request.
    pub(super) pause_us: Option<u64>,
    /// Think time set by the plan.
    pub(super) think_us: u64,
    pub(super) goose_us: Option<u64>,
}

/// State shared by the users of a step.
pub(super) struct Shared {
    pub(super) step: ClosedLoop,
    pub(super) carrier: Carrier,
    pub(super) thinks_us: Vec<u64>,
    pub(super) users: Users,
    pub(super) started: watch::Sender<bool>,
    pub(super) window_start_us: u64,
    pub(super) window_end_us: u64,
    pub(super) next_body: AtomicUsize,
    pub(super) next_user: AtomicUsize,
    pub(super) stopped: AtomicBool,
    /// Turns of all users; locked once per user, at its end.
    pub(super) turns: Mutex<Vec<Turn>>,
    pub(super) examples: Examples,
}

impl Shared {
    pub(super) fn new(step: ClosedLoop) -> Result<Self, DriverError> {
        let window_start_us = micros(step.warmup);
        Ok(Self {
            carrier: Carrier::new(&step.route, step.timeout)?,
            thinks_us: step.think.draw(step.seed),
            users: Users::new(step.users),
            started: watch::channel(false).0,
            window_start_us,
            window_end_us: window_start_us + micros(step.window),
            next_body: AtomicUsize::new(0),
            next_user: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            turns: Mutex::default(),
            examples: Examples::default(),
            step,
        })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the next body, and the expectation for its reply.
    pub(super) fn next(&self) -> (&Body, &Arc<Expected>) {
        let index = self.next_body.fetch_add(1, Ordering::Relaxed);
        let body = &self.step.bodies[index % self.step.bodies.len()];
        let wanted = body.wanted.as_ref();
        (body, wanted.map_or(&self.step.expected, |wanted| wanted.at(index)))
    }

    pub(super) fn in_window(&self, us: u64) -> bool {
        (self.window_start_us..self.window_end_us).contains(&us)
    }
}

/// Prepared [`Route`].
pub(super) enum Carrier {
    Http(Box<Http>),
    Grpc(Arc<Connections>, Duration),
}

/// Route over HTTP, with the parts common to all requests.
pub(super) struct Http {
    pub(super) client: ServerClient,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) route: HttpRoute,
}

impl Carrier {
    pub(super) fn new(route: &Route, timeout: Duration) -> Result<Self, DriverError> {
        let route = match route {
            Route::Grpc(connections) => return Ok(Self::Grpc(Arc::clone(connections), timeout)),
            Route::Http(route) => route.clone(),
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
const DRAWN: usize = 8_192;

/// Distribution of the think times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Think {
    /// Constant; 0 is no pause.
    Fixed(f64),
    /// Uniform between two limits.
    Uniform {
        /// Shortest pause.
        least_ms: f64,
        /// Longest pause.
        most_ms: f64,
    },
    /// Exponential, as for independent people.
    Exponential {
        /// Mean pause.
        mean_ms: f64,
    },
}

impl Think {
    /// Draws pauses in microseconds; the same seed gives the same pauses.
    #[must_use]
    pub fn draw(&self, seed: u64) -> Vec<u64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(THINK_STREAM);
        let us = |ms: f64| (ms * 1e3).round() as u64;
        (0..DRAWN)
            .map(|_| match *self {
                Self::Fixed(ms) => us(ms),
                Self::Uniform { least_ms, most_ms } => us(least_ms + (most_ms - least_ms) * rng.random_range(0.0..1.0)),
                Self::Exponential { mean_ms } => {
                    let drawn: f64 = Exp1.sample(&mut rng);
                    us(mean_ms * drawn)
                }
            })
            .collect()
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(ms) => write!(f, "{ms} ms"),
            Self::Uniform { least_ms, most_ms } => write!(f, "{least_ms} to {most_ms} ms"),
            Self::Exponential { mean_ms } => write!(f, "exponential of mean {mean_ms} ms"),
        }
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
        assert_eq!(Think::Fixed(1.5).draw(1), [1_500; DRAWN]);
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
