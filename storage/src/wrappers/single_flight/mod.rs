//! Single flight: concurrent callers share one fetch.

mod flight;
#[cfg(test)]
mod tests;

pub(super) use flight::{Boarded, ExtentKey, Lead, SingleFlight, Version, share_of};

/// Synchronisation types. `tests` replaces them with types of a scheduler that tries thread orders.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}
