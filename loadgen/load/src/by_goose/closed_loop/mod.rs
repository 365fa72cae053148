//! Closed loop: goose in its usual way. In: users, their think time, bodies and an address. Out: a sample for each
//! request from its actual send to its last byte, the users' pauses, and the times of goose's own clock.
//!
//! goose's loop runs one transaction per request, its client sends, its metrics count, and its users end by themselves.
//! goose's metrics also get each request's time to the last byte, because goose's own clock stops at the headers. A
//! closed loop does not show the waits of requests that were never sent: while the server stalls, its users stall with
//! it. Knows nothing of percentiles.

#[cfg(feature = "goose")]
mod run;
mod shared;
#[cfg(feature = "goose")]
mod user;

#[cfg(feature = "goose")]
pub use run::run;
pub use shared::ClosedLoop;
pub use shared::Think;

use crate::driver::Finished;
use crate::schedule::Schedule;
use tierlab_analysis::record::ClosedLoopFigures;

/// Result of a closed loop.
#[derive(Debug)]
pub struct Ran {
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
/// [`DriverError::NoGoose`](crate::driver::DriverError::NoGoose).
#[cfg(not(feature = "goose"))]
pub async fn run(_: ClosedLoop, _: &crate::interrupt::Interrupt) -> Result<Option<Ran>, crate::driver::DriverError> {
    Err(crate::driver::DriverError::NoGoose)
}
