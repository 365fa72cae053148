//! Journeys: several requests in a row, each built from earlier replies, begun at due times (open loop).
//!
//! In: a schedule, steps and an address. Out: a sample for each journey and each of its steps. goose runs it: a journey
//! is a `Scenario`, a step one of its transactions, and goose's client sends. That client does not speak gRPC, so a
//! step over gRPC is sent inside its transaction by the connections of [`crate::grpc`]. The times are read here:
//! goose's scenario clock begins when a user is free, not when a journey is due, and its request clock stops at the
//! headers. The first step counts from the due time, each later one from the end of the one before. Knows nothing of
//! percentiles.
//!
//! - [`template`], [`inputs`], [`value`]: requests built from values, and values extracted from replies
//! - `step`: one request and its result; `grpc_call`: the same over gRPC; `shared`: state shared
//!   by users; `user`: a goose user, which takes tickets and runs the steps

pub mod inputs;
#[cfg(feature = "goose")]
mod run;
mod shared;
mod step;
pub mod template;
#[cfg(feature = "goose")]
mod user;
pub mod value;

#[cfg(feature = "goose")]
pub use run::{run, run_from};
pub use shared::{Journey, StepSample, Whole};
pub use step::{Check, GrpcCall, JourneyStep, StepCarrier, Take};

use crate::pacer::Observed;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tierlab_analysis::record::Failure;

/// Result of journeys.
#[derive(Debug)]
pub struct Travelled {
    /// One entry per ticket, warm-up included.
    pub journeys: Vec<Whole>,
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
/// [`DriverError::NoGoose`](crate::driver::DriverError::NoGoose).
#[cfg(not(feature = "goose"))]
pub async fn run(_: Journey, _: &crate::interrupt::Interrupt) -> Result<Option<Travelled>, crate::driver::DriverError> {
    Err(crate::driver::DriverError::NoGoose)
}

/// Refuses journeys.
///
/// # Errors
/// [`DriverError::NoGoose`](crate::driver::DriverError::NoGoose).
#[cfg(not(feature = "goose"))]
pub async fn run_from<E: From<crate::driver::DriverError>>(
    _: Journey,
    _: impl Future<Output = Result<std::time::Instant, E>>,
    _: &crate::interrupt::Interrupt,
) -> Result<Option<Travelled>, E> {
    Err(crate::driver::DriverError::NoGoose.into())
}
