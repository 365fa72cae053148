//! Queue between the pacer and the users.

#[cfg(test)]
mod interleavings;
mod queue;
#[cfg(test)]
pub(crate) mod tests;

pub use queue::{Counts, Next, Taker, Ticket, Tickets};

/// Synchronisation types. `interleavings` replaces them by those of a scheduler that tries thread orders.
mod sync {
    pub(super) use std::sync::atomic::AtomicUsize;
    pub(super) use std::sync::{Mutex, MutexGuard};
}
