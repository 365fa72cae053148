//! Sessions of loads that were given up and whose threads have not ended: ONNX Runtime cannot be interrupted while it builds.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Number of them in this process.
pub(crate) fn count() -> usize {
    COUNT.load(Relaxed)
}

/// Counts one until it is dropped.
#[derive(Debug)]
pub(super) struct Abandoned(());

impl Abandoned {
    pub(super) fn new() -> Self {
        COUNT.fetch_add(1, Relaxed);
        Self(())
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Relaxed);
    }
}
