//! Fetches that are made once, however many ask at the same time.

mod flight;
#[cfg(test)]
mod interleavings;

pub(super) use flight::{Boarded, ExtentKey, Lead, SingleFlight, Version, share_of};

/// Synchronisation types. `interleavings` replaces them with types of a scheduler that tries thread orders.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
