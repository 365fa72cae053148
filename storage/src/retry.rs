//! Retries of a failed call. In: limits on the number of attempts and on their time. Out: waits. Makes no calls, and
//! does not know which failures are transient.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Waits that double up to a maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    /// Bounds of the random factor of a doubled wait.
    least_share: f64,
    most_share: f64,
}

impl Backoff {
    /// Waits without a random factor.
    pub(crate) const fn exact(first: Duration, longest: Duration) -> Self {
        Self::spread(first, longest, 1.0, 1.0)
    }

    /// Waits with a random factor, so that callers that failed together do not retry together.
    pub(crate) const fn spread(first: Duration, longest: Duration, least_share: f64, most_share: f64) -> Self {
        Self {
            first,
            longest,
            least_share,
            most_share,
        }
    }

    /// Wait before the `nth` retry, from 1.
    pub(crate) fn wait(&self, nth: u32, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << nth.saturating_sub(1).min(16));
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let share = self.least_share + (self.most_share - self.least_share) * share;
        doubled.min(self.longest).mul_f64(share)
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
    most: u32,
    /// Retries so far.
    pub(crate) made: u32,
}

impl Retries {
    /// Call that began at `began` and may take `limit`, including retries and waits.
    pub(crate) const fn new(backoff: Backoff, began: Instant, limit: Duration, most: u32) -> Self {
        Self {
            backoff,
            began,
            limit,
            most,
            made: 0,
        }
    }

    /// Number of retries left.
    pub(crate) const fn remaining(&self) -> u32 {
        self.most - self.made
    }

    /// Time left.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }

    /// Counts an attempt and returns the wait before it, at least `asked` (the wait that the server requires). `None`
    /// if no attempt or no time is left.
    pub(crate) fn next(&mut self, asked: Duration) -> Option<Duration> {
        let random = RandomState::new().hash_one(self.made);
        let wait = self.backoff.wait(self.made.saturating_add(1), random).max(asked);
        if self.remaining() == 0 || self.left() <= wait {
            return None;
        }
        self.made += 1;
        Some(wait)
    }

    /// Text for the error of a call that is not retried.
    pub(crate) fn given_up(&self) -> String {
        let (attempts, took) = (u64::from(self.made) + 1, self.began.elapsed().as_millis());
        format!("given up after {attempts} attempts in {took} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_waits_double_up_to_the_longest() {
        let backoff = Backoff::exact(Duration::from_millis(20), Duration::from_millis(500));
        let waits: Vec<u128> = (1..8).map(|nth| backoff.wait(nth, u64::MAX).as_millis()).collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500]);
    }

    #[test]
    fn a_call_is_repeated_within_its_bounds() {
        let backoff = Backoff::exact(Duration::from_millis(20), Duration::from_millis(500));
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut few = Retries::new(backoff, now, hour, 2);
        assert_eq!(few.next(Duration::ZERO), Some(Duration::from_millis(20)));
        assert_eq!(few.next(Duration::from_secs(1)), Some(Duration::from_secs(1)));
        assert_eq!((few.next(Duration::ZERO), few.made, few.remaining()), (None, 2, 0));
        assert!(few.given_up().starts_with("given up after 3 attempts in "));
        let mut late = Retries::new(backoff, now, Duration::from_millis(10), u32::MAX);
        assert_eq!((late.next(Duration::ZERO), late.made), (None, 0));
    }
}
