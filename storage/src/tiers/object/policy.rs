//! Time limits of the attempts at a GET, and the waits between them. In: a config. Out: durations. Sends nothing.

use super::BucketConfig;
use crate::retry::Backoff;
use std::time::Duration;

/// The wait before the first retry; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);
/// Time is divided between attempts only down to this: below it a reply that is merely slow would be given up.
const LEAST_ATTEMPT: Duration = Duration::from_millis(100);

/// Retry policy of a GET: the time limit of an attempt, and the waits between attempts.
#[derive(Debug)]
pub(super) struct RetryPolicy {
    /// Time limit of all attempts together.
    pub(super) limit: Duration,
    /// Time limit of an attempt, without the time for its bytes.
    floor: Duration,
    min_bytes_per_s: u64,
    pub(super) retries: u32,
}

impl RetryPolicy {
    pub(super) fn new(config: &BucketConfig) -> Self {
        Self {
            limit: Duration::from_millis(config.timeout_ms.max(1)),
            floor: Duration::from_millis(config.attempt_ms.max(1)),
            min_bytes_per_s: config.min_bytes_per_s.max(1),
            retries: config.retries,
        }
    }

    /// Time limit of an attempt at `bytes`, with `left` remaining of the whole limit and `retries` still possible. The
    /// limit is the time of the bytes plus `attempt_ms`. While a retry may follow, it is at most half of `left`, so
    /// that a stall leaves time for another attempt. It is never less than the time of the bytes, and never more than
    /// `left`.
    pub(super) fn of_attempt(&self, bytes: u64, left: Duration, retries: u32) -> Duration {
        let moving = Duration::from_secs_f64(bytes as f64 / self.min_bytes_per_s as f64);
        let fair = if retries == 0 || left < 2 * LEAST_ATTEMPT {
            left
        } else {
            (left / 2).max(moving)
        };
        self.floor.saturating_add(moving).min(fair).min(left)
    }

    /// Waits before retries: at most a quarter of the limit, of which a random share of at least half is used.
    pub(super) fn backoff(&self) -> Backoff {
        Backoff::spread(FIRST_BACKOFF, self.limit / 4, 0.5, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(limit_ms: u64) -> RetryPolicy {
        RetryPolicy {
            limit: Duration::from_millis(limit_ms),
            floor: Duration::from_millis(500),
            min_bytes_per_s: 1_000_000,
            retries: 3,
        }
    }

    fn limit_ms(bytes: u64, left_ms: u64, retries: u32) -> u128 {
        let left = Duration::from_millis(left_ms);
        policy(5000).of_attempt(bytes, left, retries).as_millis()
    }

    #[test]
    fn an_attempt_has_time_for_its_bytes() {
        assert_eq!(limit_ms(0, 5000, 3), 500);
        assert_eq!(limit_ms(2_000_000, 5000, 3), 2500);
        assert_eq!(limit_ms(2_000_000, 3000, 3), 2000);
        assert_eq!(limit_ms(2_000_000, 1000, 3), 1000);
        assert_eq!(limit_ms(u64::MAX, 5000, 3), 5000);
    }

    #[test]
    fn a_short_deadline_is_shared_between_attempts() {
        assert_eq!(limit_ms(512, 600, 3), 300);
        assert_eq!(limit_ms(512, 200, 3), 100);
        // The last attempt may use everything, and the remaining time can be too short to divide.
        assert_eq!(limit_ms(512, 200, 0), 200);
        assert_eq!(limit_ms(512, 150, 3), 150);
        assert_eq!(limit_ms(512, 60, 3), 60);
        assert_eq!(limit_ms(512, 0, 3), 0);
    }

    proptest! {
        #[test]
        fn backoff_grows_and_is_bounded(limit_ms in 1_u64..100_000, nth in 1_u32..40, random: u64) {
            let policy = policy(limit_ms);
            let wait = policy.backoff().wait(nth, random);
            prop_assert!(wait <= policy.limit / 4);
            prop_assert!(wait >= policy.backoff().wait(nth, 0));
            prop_assert!(policy.backoff().wait(nth, u64::MAX) <= policy.backoff().wait(nth + 1, 0).max(policy.limit / 4) * 2);
        }
    }
}
