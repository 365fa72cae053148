//! One range of one version, whatever it takes. In: a range and the memory for it. Out: its bytes, in place, and what
//! they cost. An attempt that breaks off or stalls leaves the bytes that came, and the next goes on behind them, under
//! the same ETag; so no byte is asked for twice, and none of another version is ever taken.

use super::attempts::Attempts;
use super::bucket::{Bucket, version_of};
use super::hedge::Hedging;
use crate::config::S3Config;
use crate::error::{ErrorKind, StorageError};
use bytes::BytesMut;
use futures::StreamExt;
use futures::future::{Either, select};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetResult, ObjectStore};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The wait before the first retry; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// A range's bytes, and how often it was asked for.
pub(super) struct Got {
    pub(super) bytes: BytesMut,
    /// GETs that went out, hedges included.
    pub(super) requests: u32,
    /// Attempts beyond the first.
    pub(super) retries: u32,
}

/// How long and how often a GET is tried.
#[derive(Debug)]
pub(super) struct Patience {
    /// All attempts together.
    pub(super) limit: Duration,
    /// One attempt without its bytes.
    floor: Duration,
    min_bytes_per_s: u64,
    retries: u32,
}

impl Patience {
    pub(super) fn new(config: &S3Config) -> Self {
        Self {
            limit: Duration::from_millis(config.timeout_ms.max(1)),
            floor: Duration::from_millis(config.attempt_ms.max(1)),
            min_bytes_per_s: config.min_bytes_per_s.max(1),
            retries: config.retries,
        }
    }

    /// The limit of one attempt at `bytes`, when `left` remains of the whole.
    fn of_attempt(&self, bytes: u64, left: Duration) -> Duration {
        let moving = Duration::from_secs_f64(bytes as f64 / self.min_bytes_per_s as f64);
        self.floor.saturating_add(moving).min(left)
    }

    /// The wait before the `nth` retry, from 1: doubling, at most a quarter of the limit, and of that a random part of
    /// at least half, so that clients that failed together do not come back together.
    fn backoff(&self, nth: u32, random: u64) -> Duration {
        let doubled = FIRST_BACKOFF.saturating_mul(1 << nth.saturating_sub(1).min(16));
        let longest = doubled.min(self.limit / 4);
        longest.mul_f64(0.5 + 0.5 * (random >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

impl Bucket {
    /// Reads a range of one version into `into`, whose capacity must be the range's length.
    pub(super) async fn get(
        &self,
        key: &Key,
        version: &str,
        range: Range<u64>,
        mut into: BytesMut,
    ) -> Result<Got, StorageError> {
        let began = Instant::now();
        let wanted = range.end - range.start;
        let attempts = Attempts::default();
        let mut retries = 0;
        loop {
            let left = self.patience.limit.saturating_sub(began.elapsed());
            let rest = range.start + into.len() as u64..range.end;
            let limit = self.patience.of_attempt(rest.end - rest.start, left);
            let attempt = self.attempt(key, version, rest, &mut into, &attempts);
            let failure = match tokio::time::timeout(limit, attempt).await {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some(e),
                Err(_) => Some(self.stalled(key, limit)),
            };
            // All bytes may have come before the failure.
            let Some(failure) = failure.filter(|_| (into.len() as u64) < wanted) else {
                return Ok(Got {
                    bytes: into,
                    requests: attempts.count(),
                    retries,
                });
            };
            let wait = self.patience.backoff(retries + 1, RandomState::new().hash_one(retries));
            let left = self.patience.limit.saturating_sub(began.elapsed());
            if !failure.kind().is_transient() || retries >= self.patience.retries || left <= wait {
                return Err(given_up(&failure, retries + 1, began.elapsed(), into.len(), wanted));
            }
            tracing::debug!("retried from byte {} on: {failure}", range.start + into.len() as u64);
            retries += 1;
            tokio::time::sleep(wait).await;
        }
    }

    fn stalled(&self, key: &Key, limit: Duration) -> StorageError {
        let detail = format!("{} did not finish within {} ms", self.endpoint(), limit.as_millis());
        StorageError::new(ErrorKind::Timeout, self.object(key), detail)
    }

    /// One GET of what is missing, appended to `into` as it comes.
    async fn attempt(
        &self,
        key: &Key,
        version: &str,
        rest: Range<u64>,
        into: &mut BytesMut,
        attempts: &Attempts,
    ) -> Result<(), StorageError> {
        let mut missing = rest.end - rest.start;
        let mut options = GetOptions {
            range: Some(rest.into()),
            ..GetOptions::default()
        };
        // A weak tag never matches under If-Match; then the reply's tag below has to do.
        options.if_match = version.starts_with('"').then(|| version.to_owned());
        options.extensions.insert(attempts.clone());
        let result = self.reply(key, options).await.map_err(|e| self.error(key, &e))?;
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

    /// The beginning of a reply: of the GET, or of a second one where hedging sends it.
    async fn reply(&self, key: &Key, options: GetOptions) -> object_store::Result<GetResult> {
        let Some(hedging) = &self.hedging else {
            return self.reads.get_opts(key, options).await;
        };
        let sent = Instant::now();
        let delay = hedging.begin();
        let first = self.reads.get_opts(key, options.clone());
        let result = match delay {
            None => first.await,
            Some(delay) => self.hedged(hedging, delay, first, key, options).await,
        };
        if result.is_ok() {
            hedging.record(sent.elapsed());
        }
        result
    }

    async fn hedged(
        &self,
        hedging: &Hedging,
        delay: Duration,
        first: impl Future<Output = object_store::Result<GetResult>> + Unpin,
        key: &Key,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let first = match select(first, Box::pin(tokio::time::sleep(delay))).await {
            Either::Left((result, _)) => return result,
            Either::Right(((), first)) => first,
        };
        if !hedging.allow() {
            return first.await;
        }
        // The one that fails leaves it to the other.
        match select(first, self.reads.get_opts(key, options)).await {
            Either::Left((Err(_), second)) => second.await,
            Either::Right((Err(_), first)) => first.await,
            Either::Left((reply, _)) | Either::Right((reply, _)) => reply,
        }
    }
}

/// The last failure, and what was done before it was let through.
fn given_up(failure: &StorageError, attempts: u32, took: Duration, got: usize, wanted: u64) -> StorageError {
    if !failure.kind().is_transient() {
        return failure.clone();
    }
    let detail = format!(
        "{}; given up after {attempts} attempts in {} ms with {got} of {wanted} bytes",
        failure.detail(),
        took.as_millis()
    );
    StorageError::new(failure.kind(), failure.object(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patience(limit_ms: u64) -> Patience {
        Patience {
            limit: Duration::from_millis(limit_ms),
            floor: Duration::from_millis(500),
            min_bytes_per_s: 1_000_000,
            retries: 3,
        }
    }

    #[test]
    fn an_attempt_has_time_for_its_bytes() {
        let limit = |bytes, left| {
            patience(5000)
                .of_attempt(bytes, Duration::from_millis(left))
                .as_millis()
        };
        assert_eq!(limit(0, 5000), 500);
        assert_eq!(limit(2_000_000, 5000), 2500);
        assert_eq!(limit(2_000_000, 1000), 1000);
        assert_eq!(limit(u64::MAX, 5000), 5000);
    }

    proptest! {
        #[test]
        fn backoff_grows_and_is_bounded(limit_ms in 1_u64..100_000, nth in 1_u32..40, random: u64) {
            let patience = patience(limit_ms);
            let wait = patience.backoff(nth, random);
            prop_assert!(wait <= patience.limit / 4);
            prop_assert!(wait >= patience.backoff(nth, 0));
            prop_assert!(patience.backoff(nth, u64::MAX) <= patience.backoff(nth + 1, 0).max(patience.limit / 4) * 2);
        }
    }
}
