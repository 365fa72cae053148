//! Fetches that are made once, however many ask at the same time.

mod flight;
#[cfg(test)]
mod interleavings;

pub(super) use flight::{Boarded, ExtentKey, Lead, SingleFlight, Version, share_of};

/// What threads share here; `interleavings` has these of a scheduler that tries orders of threads.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
