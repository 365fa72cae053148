//! Batching: requests of a model share runs.

pub(crate) mod clock;
pub(crate) mod job;
mod queue;
pub(crate) mod rule;
pub(crate) mod runs;
#[cfg(test)]
mod tests;

pub(crate) use queue::BatchQueue;

/// Synchronisation types of the queue. `tests/interleavings.rs` replaces them with those of a scheduler that tries
/// thread orders.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
}
