//! Requests of one model share a run: the queue, and what it is made of.

pub(crate) mod active;
pub(crate) mod clock;
pub(crate) mod elements;
pub(crate) mod groups;
#[cfg(test)]
mod interleavings;
pub(crate) mod job;
mod pace;
mod queue;
pub(crate) mod rule;
mod runs;
pub(crate) mod split;
#[cfg(test)]
mod tests;

pub(crate) use queue::{BatchQueue, QueueGauges, WakeUp};

/// What threads share in the queue; `interleavings` has these of a scheduler that tries orders of threads.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
}
