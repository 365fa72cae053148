//! Retries of a failed call. In: limits on the number of attempts and on their time. Out: waits. Makes no calls.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Waits that double up to a maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    max_wait: Duration,
    /// Bounds of the random factor of a doubled wait.
    min_share: f64,
    max_share: f64,
}

impl Backoff {
    /// Waits with a random factor between the two shares, so that callers that failed together do not retry together.
    pub(crate) const fn spread(first: Duration, max_wait: Duration, min_share: f64, max_share: f64) -> Self {
        Self {
            first,
            max_wait,
            min_share,
            max_share,
        }
    }

    /// Wait before the `nth` retry, from 1.
    pub(crate) fn wait(&self, nth: u32, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << nth.saturating_sub(1).min(16));
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let share = self.min_share + (self.max_share - self.min_share) * share;
        doubled.min(self.max_wait).mul_f64(share)
    }
}

/// A call with its retries.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    began: Instant,
    /// Time limit of all attempts and waits.
    limit: Duration,
    /// Maximum number of retries.
    max: u32,
    /// Retries so far.
    pub(crate) count: u32,
}

impl Retries {
    /// Call that began at `began` and may take `limit`, including retries and waits.
    pub(crate) const fn new(backoff: Backoff, began: Instant, limit: Duration, max: u32) -> Self {
        Self {
            backoff,
            began,
            limit,
            max,
            count: 0,
        }
    }

    /// Number of retries left.
    pub(crate) const fn remaining(&self) -> u32 {
        self.max - self.count
    }

    /// Time left.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }

    /// Counts an attempt and returns the wait before it, at least `min_wait` (required by the server). `None`
    /// if no attempt or no time is left.
    pub(crate) fn next(&mut self, min_wait: Duration) -> Option<Duration> {
        let random = RandomState::new().hash_one(self.count);
        let wait = self.backoff.wait(self.count.saturating_add(1), random).max(min_wait);
        if self.remaining() == 0 || self.left() <= wait {
            return None;
        }
        self.count += 1;
        Some(wait)
    }

    /// Waits for the next attempt after a transient failure; returns any other failure, and one without an attempt left.
    #[cfg(any(feature = "flight", feature = "redis"))]
    pub(crate) async fn after(&mut self, failure: crate::StorageError) -> Result<(), crate::StorageError> {
        if !failure.kind().is_transient() {
            return Err(failure);
        }
        let Some(wait) = self.next(Duration::ZERO) else {
            let detail = format!("{}; {}", failure.detail(), self.describe_attempts());
            return Err(failure.kind().error(failure.object(), detail));
        };
        tracing::debug!("retrying in {} ms: {failure}", wait.as_millis());
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Text for the error of a call that is not retried.
    pub(crate) fn describe_attempts(&self) -> String {
        let (attempts, elapsed_ms) = (u64::from(self.count) + 1, self.began.elapsed().as_millis());
        format!("given up after {attempts} attempts in {elapsed_ms} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_waits_double_up_to_the_longest() {
        let backoff = Backoff::spread(Duration::from_millis(20), Duration::from_millis(500), 1.0, 1.0);
        let waits: Vec<u128> = (1..8).map(|nth| backoff.wait(nth, u64::MAX).as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500]);
    }

    #[test]
    fn a_call_is_repeated_within_its_bounds() {
        let backoff = Backoff::spread(Duration::from_millis(20), Duration::from_millis(500), 1.0, 1.0);
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut two = Retries::new(backoff, now, hour, 2);
        assert_eq!(two.next(Duration::ZERO), Some(Duration::from_millis(20)));
        assert_eq!(two.next(Duration::from_secs(1)), Some(Duration::from_secs(1)));
        assert_eq!((two.next(Duration::ZERO), two.count, two.remaining()), (None, 2, 0));
        assert!(two.describe_attempts().starts_with("given up after 3 attempts in "));
        let mut expired = Retries::new(backoff, now, Duration::from_millis(10), u32::MAX);
        assert_eq!((expired.next(Duration::ZERO), expired.count), (None, 0));
    }
}
