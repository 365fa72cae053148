//! Drain rate of a queue. A request that cannot be answered in time is refused on arrival instead of after a wait:
//! otherwise an overloaded queue would produce only late answers.
//!
//! In: the durations of runs, and the number of runs ahead of a request. Out: an estimate of its wait.

use crate::request::{Reason, Refusal};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Divisor of a run's weight in the moving average.
const WEIGHT: u64 = 8;

/// Pace of one queue. An empty queue admits every request, so that a bad estimate corrects itself.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Moving average of the duration of a session's run.
    run_ns: AtomicU64,
    sessions: AtomicUsize,
}

impl Pace {
    pub(super) fn add_session(&self) {
        self.sessions.fetch_add(1, Relaxed);
    }

    /// Adds a run to the average. Concurrent updates may overwrite each other, because the average is an estimate only.
    pub(super) fn note(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let average = match self.run_ns.load(Relaxed) {
            0 => ns,
            average => average - average / WEIGHT + ns / WEIGHT,
        };
        self.run_ns.store(average, Relaxed);
    }

    /// Refuses a request that would wait behind `runs` runs for longer than `limit`.
    pub(super) fn check_wait(&self, runs: usize, limit: Duration) -> Result<(), Refusal> {
        let sessions = self.sessions.load(Relaxed).max(1) as u64;
        let wait = Duration::from_nanos(self.run_ns.load(Relaxed).saturating_mul(runs as u64) / sessions);
        if wait <= limit {
            return Ok(());
        }
        let (wait, limit) = (wait.as_millis(), limit.as_millis());
        let what =
            format!("the model's queue has a wait of about {wait} ms, more than the request's limit of {limit} ms");
        Err(Refusal::new(Reason::Full, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_late_is_refused_and_an_empty_queue_refuses_nothing() {
        let pace = Pace::default();
        let ms = Duration::from_millis;
        assert!(pace.check_wait(1_000_000, ms(1)).is_ok(), "nothing is known yet");
        pace.note(ms(100));
        assert!(pace.check_wait(10, ms(1000)).is_ok());
        assert_eq!(pace.check_wait(11, ms(1000)).unwrap_err().reason, Reason::Full);
        pace.add_session();
        pace.add_session();
        assert!(pace.check_wait(20, ms(1000)).is_ok());
        assert!(pace.check_wait(0, Duration::ZERO).is_ok());
        for _ in 0..100 {
            pace.note(ms(1));
        }
        assert!(pace.check_wait(1000, ms(1000)).is_ok());
    }
}
