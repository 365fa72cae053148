//! Queue between the pacer and the users.

mod queue;
#[cfg(test)]
pub(crate) mod tests;

pub use queue::{Counts, Next, Ticket, TicketTaker, Tickets};

/// Synchronisation types. `tests::interleavings` replaces them by those of a scheduler that tries thread orders.
mod sync {
    pub(super) use std::sync::atomic::AtomicUsize;
    pub(super) use std::sync::{Mutex, MutexGuard};
}
