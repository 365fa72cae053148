//! Read of a range of one version, over as many attempts as needed. In: a range and the memory for it. Out: its bytes,
//! in place, and their cost. An attempt that breaks off or stalls leaves the bytes that arrived, and the next attempt
//! continues behind them under the same ETag. So no byte is requested twice, and no byte of another version is
//! accepted. No attempt, and no wait between attempts, outlives the caller's deadline.

use super::S3Config;
use super::attempts::Attempts;
use super::bucket::{Bucket, version_of};
use crate::error::{ErrorKind, StorageError};
use crate::retry::{Backoff, Retries};
use crate::tier::ReadCost;
use bytes::BytesMut;
use futures::StreamExt;
use object_store::GetOptions;
use object_store::path::Path as Key;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Range of a version to read.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a Key,
    pub(super) version: &'a str,
    pub(super) range: Range<u64>,
    /// Time at which the caller stops waiting.
    pub(super) deadline: Option<Instant>,
}

impl Bucket {
    /// Reads a range into `into`, whose capacity must be the range's length. The cost has no times; its requests
    /// include hedges, and its bytes those that were asked for by a hedge that lost.
    pub(super) async fn get(
        &self,
        wanted: Wanted<'_>,
        mut into: BytesMut,
    ) -> Result<(BytesMut, ReadCost), StorageError> {
        let Wanted { key, range, .. } = &wanted;
        let began = Instant::now();
        let asker = wanted
            .deadline
            .map(|deadline| deadline.saturating_duration_since(began));
        let limit = asker.map_or(self.policy.limit, |limit| limit.min(self.policy.limit));
        let mut retries = Retries::new(self.policy.backoff(), began, limit, self.policy.retries);
        let len = range.end - range.start;
        let attempts = Attempts::of_read(&self.unreported);
        loop {
            let rest = range.start + into.len() as u64..range.end;
            let missing = rest.end - rest.start;
            let limit = self.policy.of_attempt(missing, retries.left(), retries.remaining());
            let attempt = self.attempt(&wanted, rest, &mut into, &attempts);
            let failure = match tokio::time::timeout(limit, attempt).await {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some(e),
                Err(_) => Some(self.stalled(key, limit)),
            };
            // All bytes may have arrived before the failure.
            let Some(failure) = failure.filter(|_| (into.len() as u64) < len) else {
                attempts.report();
                let cost = ReadCost {
                    wire_bytes: into.len() as u64 + attempts.lost_bytes(),
                    requests: attempts.requests(),
                    retries: retries.made(),
                    hedges: attempts.hedges(),
                    ..ReadCost::default()
                };
                return Ok((into, cost));
            };
            let asked = attempts.take_retry_after();
            let wait = match failure.kind().is_transient() {
                true => retries.next(asked.unwrap_or_default()),
                false => None,
            };
            let Some(wait) = wait else {
                attempts.count_lost(into.len() as u64);
                if !failure.kind().is_transient() {
                    return Err(failure);
                }
                let asked = asked.map_or_else(String::new, |asked| {
                    format!("; it asked to be left alone for {} s", asked.as_secs())
                });
                let (said, tried, got) = (failure.detail(), retries.given_up(), into.len());
                let detail = format!("{said}{asked}; {tried} with {got} of {len} bytes");
                return Err(StorageError::new(failure.kind(), failure.object(), detail));
            };
            tracing::debug!("retried from byte {} on: {failure}", range.start + into.len() as u64);
            tokio::time::sleep(wait).await;
        }
    }

    /// The time was over before a GET could be sent.
    pub(super) fn busy(&self, key: &Key) -> StorageError {
        let detail = format!(
            "{}: no slot for a GET came free in time; see `concurrency`",
            self.endpoint()
        );
        StorageError::new(ErrorKind::Timeout, self.object(key), detail)
    }

    fn stalled(&self, key: &Key, limit: Duration) -> StorageError {
        let detail = format!("{} did not finish within {} ms", self.endpoint(), limit.as_millis());
        StorageError::new(ErrorKind::Timeout, self.object(key), detail)
    }

    /// Makes one GET of the missing bytes and appends them to `into` as they arrive.
    async fn attempt(
        &self,
        wanted: &Wanted<'_>,
        rest: Range<u64>,
        into: &mut BytesMut,
        attempts: &Attempts,
    ) -> Result<(), StorageError> {
        let Wanted { key, version, .. } = *wanted;
        let mut missing = rest.end - rest.start;
        let mut options = GetOptions {
            range: Some(rest.into()),
            ..GetOptions::default()
        };
        // A weak tag never matches under If-Match; then the reply's tag below has to do.
        options.if_match = version.starts_with('"').then(|| version.to_owned());
        options.extensions.insert(attempts.clone());
        let result = self.reply(key, options, missing, attempts).await;
        let result = result.map_err(|e| self.error(key, &e))?;
        let found = version_of(&result.meta);
        if found != version {
            let detail = format!("{} has version {found}, not {version}", self.endpoint());
            return Err(StorageError::new(ErrorKind::Changed, self.object(key), detail));
        }
        let mut body = result.into_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|e| self.error(key, &e))?;
            let unexpected = || {
                let detail = format!("{} sent more than was asked for", self.endpoint());
                StorageError::new(ErrorKind::Unavailable, self.object(key), detail)
            };
            missing = missing.checked_sub(chunk.len() as u64).ok_or_else(unexpected)?;
            into.extend_from_slice(&chunk);
        }
        if missing > 0 {
            let detail = format!("{} ended its reply {missing} bytes early", self.endpoint());
            return Err(StorageError::new(ErrorKind::Unavailable, self.object(key), detail));
        }
        Ok(())
    }
}

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
    pub(super) fn new(config: &S3Config) -> Self {
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
