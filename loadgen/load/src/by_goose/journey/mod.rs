//! Journeys: several requests in a row, each built from earlier replies, begun at due times (open loop).
//!
//! In: a schedule, steps and an address. Out: a sample for each journey and each of its steps. goose runs it: a journey
//! is a `Scenario`, a step one of its transactions, and goose's client sends. That client does not speak gRPC, so a
//! step over gRPC is sent inside its transaction by the connections of [`crate::grpc`]. The times are read here:
//! goose's scenario clock begins when a user is free, not when a journey is due, and its request clock stops at the
//! headers. The first step counts from the due time, each later one from the end of the one before. Knows nothing of
//! percentiles.
//!
//! - [`template`], [`inputs`]: requests built from values, and values extracted from replies
//! - `step`: one request and its result; `run`: goose's users, which take tickets and run the steps

pub mod inputs;
#[cfg(feature = "goose")]
mod run;
mod step;
pub mod template;

#[cfg(feature = "goose")]
pub use run::{run, run_from};
pub use step::{Check, Extraction, GrpcCall, JourneyStep, StepTransport};

use crate::by_goose::client::ServerClient;
use crate::driver::{DriverError, Examples, OpenLoop};
use crate::endpoint::Endpoint;
use crate::live::Watch;
use crate::pacer::Observed;
use crate::schedule::Schedule;
use anyhow::Result;
use reqwest::Url;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::{Failure, Outcome, Sample};

/// Result of journeys.
#[derive(Debug)]
pub struct JourneyResults {
    /// One entry per ticket, warm-up included.
    pub journeys: Vec<JourneySample>,
    /// Samples by step, one for each journey that reached it.
    pub steps: Vec<Vec<StepSample>>,
    /// The pacer's observations of journeys.
    pub observed: Observed,
    /// Start of the measured window.
    pub window_began: SystemTime,
    /// First example of each kind of failure, by step.
    pub examples: Vec<BTreeMap<Failure, String>>,
}

/// Refuses journeys.
///
/// # Errors
/// [`DriverError::NoGoose`].
#[cfg(not(feature = "goose"))]
pub async fn run(_: Journey, _: &crate::interrupt::Interrupt) -> Result<Option<JourneyResults>, DriverError> {
    Err(DriverError::NoGoose)
}

/// Refuses journeys.
///
/// # Errors
/// [`DriverError::NoGoose`].
#[cfg(not(feature = "goose"))]
pub async fn run_from<E: From<DriverError>>(
    _: Journey,
    _: impl Future<Output = Result<std::time::Instant, E>>,
    _: &crate::interrupt::Interrupt,
) -> Result<Option<JourneyResults>, E> {
    Err(DriverError::NoGoose.into())
}

/// One measured step of a run: journeys at one rate.
#[derive(Debug, Clone)]
pub struct Journey {
    /// Server of the journeys.
    pub endpoint: Arc<Endpoint>,
    /// Due times of the journeys.
    pub schedule: Arc<Schedule>,
    /// Entity of each journey, in turn; empty if none is needed.
    pub entities: Arc<Vec<i64>>,
    /// Steps of a journey; at least one.
    pub steps: Arc<Vec<JourneyStep>>,
    /// Number of values of a journey: the entity, then the values that steps extract.
    pub values: usize,
    /// Maximum journeys in flight.
    pub users: usize,
    /// Time limit of the client for one request, from its actual send.
    pub timeout: Duration,
    /// Time that replies may take after the window.
    pub drain: Duration,
    /// Live view of the step.
    pub watch: Watch,
}

/// One request of a journey.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSample {
    /// Times and outcome; due at the journey's due time for the first step, at the end of the previous step for the
    /// others.
    pub sample: Sample,
    /// Due time of its journey.
    pub journey_due_us: u64,
}

/// One journey, from its due time to the end of its last step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JourneySample {
    /// Times and outcome, those of the last or the failed step.
    pub sample: Sample,
    /// Index of the failed step.
    pub failed_at: Option<usize>,
    /// goose's own times of its requests, summed, in microseconds; absent if goose did not send all of them.
    pub goose_us: Option<u64>,
}

impl Journey {
    /// Returns the share of load process `number` of `of`: every `of`-th journey, and an equal part of the users.
    #[must_use]
    pub fn share(self, number: usize, of: usize) -> Self {
        let journeys = self.schedule.due_us.len();
        let own = (number..journeys).step_by(of);
        let entities = match self.entities.len() {
            0 => Vec::new(),
            all => own.map(|journey| self.entities[journey % all]).collect(),
        };
        Self {
            entities: Arc::new(entities),
            schedule: Arc::new(self.schedule.share(number, of)),
            users: self.users.div_ceil(of),
            ..self
        }
    }
}

impl StepSample {
    /// Returns the sample with its due time replaced by its journey's.
    pub fn from_journey_due(&self) -> Sample {
        let later = self.sample.due_us.saturating_sub(self.journey_due_us);
        Sample {
            due_us: self.journey_due_us,
            sent_us: self.sample.sent_us - later,
            done_us: self.sample.done_us - later,
            ..self.sample
        }
    }
}

/// State shared by the users of a step.
struct JourneyShared {
    step: Journey,
    /// goose's client for the server; absent if every step uses gRPC.
    client: Option<ServerClient>,
    open_loop: OpenLoop,
    /// Results of all users; locked once per user, at its end.
    done: Mutex<EndedJourneys>,
    /// Examples of failures, by step.
    examples: Vec<Examples>,
}

/// Results of users.
#[derive(Debug, Clone, Default)]
struct EndedJourneys {
    journeys: Vec<JourneySample>,
    steps: Vec<Vec<StepSample>>,
}

impl JourneyShared {
    fn new(step: Journey) -> Result<Self, DriverError> {
        let by_goose = step.steps.iter().any(|step| step.grpc().is_none());
        let client = by_goose.then(|| ServerClient::new(&step.endpoint, step.timeout));
        Ok(Self {
            client: client.transpose()?,
            open_loop: OpenLoop::new(&step.schedule, step.users, step.drain, &step.watch),
            done: Mutex::new(EndedJourneys {
                journeys: Vec::with_capacity(step.schedule.due_us.len()),
                steps: vec![Vec::with_capacity(step.schedule.due_us.len()); step.steps.len()],
            }),
            examples: step.steps.iter().map(|_| Examples::default()).collect(),
            step,
        })
    }

    /// Returns the whole address of a step's path.
    fn url(&self, path: &str) -> Result<Url> {
        let Some(client) = &self.client else {
            unreachable!("steps over HTTP have a client");
        };
        Ok(client.url(&self.step.endpoint.path(path))?)
    }
}

impl JourneySample {
    /// Returns the failure with its step; `None` for a success.
    pub const fn failure(&self) -> Option<(usize, Failure)> {
        match (self.failed_at, self.sample.outcome) {
            (Some(step), Outcome::Failed(failure)) => Some((step, failure)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_keeps_its_times_where_its_journey_was_due() {
        let step = StepSample {
            sample: Sample {
                due_us: 1_500,
                sent_us: 1_600,
                done_us: 2_500,
                outcome: Outcome::Ok,
                timings: None,
            },
            journey_due_us: 1_000,
        };
        let moved = step.from_journey_due();
        assert_eq!((moved.due_us, moved.sent_us, moved.done_us), (1_000, 1_100, 2_000));
        assert_eq!(moved.latency_us(), step.sample.latency_us());
        assert_eq!(moved.lag_us(), step.sample.lag_us());
    }
}
