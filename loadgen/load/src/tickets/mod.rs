//! The queue between the pacer and the users.

#[cfg(test)]
mod interleavings;
mod queue;
#[cfg(test)]
pub(crate) mod tests;

pub use queue::{Counts, Next, Taker, Ticket, Tickets};

/// What threads share here; `interleavings` has these of a scheduler that tries orders of threads.
mod sync {
    pub(super) use std::sync::atomic::AtomicUsize;
    pub(super) use std::sync::{Mutex, MutexGuard};
}
