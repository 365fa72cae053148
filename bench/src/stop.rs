//! Ctrl-C handling. In: the signal. Out: a flag that every activity checks.

use anyhow::{Context, Error, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which waits check for the signal and for their end.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Flag set by a request to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Handles Ctrl-C and SIGTERM for the rest of the process. The second signal ends the process at once.
    pub(crate) fn on_signal() -> Result<Self> {
        let stop = Self::default();
        let flag = stop.0.clone();
        let again = || {
            eprintln!("interrupted twice: the measurement's data is not removed");
            std::process::exit(1);
        };
        tierlab_program::on_interrupt(move || flag.store(true, Ordering::Relaxed), again)
            .context("cannot handle Ctrl-C")?;
        Ok(stop)
    }

    /// Requests a stop, like a signal.
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns once a stop is requested.
    pub(crate) async fn requested(&self) {
        while !self.is_requested() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Does work that a requested stop gives up.
    ///
    /// # Errors
    /// The work fails, or a stop is requested.
    pub(crate) async fn gives_up<T, E: Into<Error>>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            () = self.requested() => bail!("interrupted"),
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sleeps until a time. Ends early once `is_over`, which is checked every `interval`.
pub(crate) fn sleep_until(until: Instant, interval: Duration, is_over: impl Fn() -> bool) {
    while !is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(interval));
    }
}
