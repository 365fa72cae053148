//! Read of a range of one version, with retries. In: a range and the memory for it. Out: its bytes, in place, and their
//! cost. The bytes of a broken or stalled attempt are kept, and the next attempt continues after them under the same
//! ETag. So no byte is requested twice, and no byte of another version is accepted. No attempt, and no wait between
//! attempts, outlives the caller's deadline.

use super::attempts::Attempts;
use super::bucket::Bucket;
use super::hedge::reply;
use super::service::Service;
use crate::retry::Retries;
use crate::{ErrorKind, ReadCost, StorageError};
use bytes::BytesMut;
use futures::StreamExt;
use object_store::GetOptions;
use object_store::path::Path as Key;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Range of a version to read.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a Key,
    /// Version that every reply must have. If the object was not looked up, the first reply sets it.
    pub(super) version: &'a OnceLock<String>,
    /// Size that the object must have, if it was not looked up.
    pub(super) size: Option<u64>,
    pub(super) range: Range<u64>,
    /// Time at which the caller stops waiting.
    pub(super) deadline: Option<Instant>,
}

impl Bucket {
    /// Reads a range into `into`, whose capacity must be the range's length. The cost has no times. It includes hedged
    /// requests, and the bytes requested by losing hedges.
    pub(super) async fn get(
        &self,
        wanted: Wanted<'_>,
        mut into: BytesMut,
    ) -> Result<(BytesMut, ReadCost), StorageError> {
        let Wanted { key, range, .. } = &wanted;
        let began = Instant::now();
        let left = |deadline: Instant| deadline.saturating_duration_since(began).min(self.policy.limit);
        let limit = wanted.deadline.map_or(self.policy.limit, left);
        let mut retries = Retries::new(self.policy.backoff(), began, limit, self.policy.retries);
        let len = range.end - range.start;
        let attempts = Attempts::default();
        attempts.lock().unreported = Some(Arc::clone(&self.unreported));
        loop {
            let rest = range.start + into.len() as u64..range.end;
            let missing = rest.end - rest.start;
            let limit = self.policy.of_attempt(missing, retries.left(), retries.remaining());
            let attempt = self.attempt(&wanted, rest, &mut into, &attempts);
            let failure = match tokio::time::timeout(limit, attempt).await {
                Ok(Ok(())) => None,
                Ok(Err(e)) => Some(e),
                Err(_) => {
                    let detail = format!(" did not finish within {} ms", limit.as_millis());
                    Some(self.fault(ErrorKind::Timeout, key, &detail))
                }
            };
            // All bytes may have arrived before the failure.
            let Some(failure) = failure.filter(|_| (into.len() as u64) < len) else {
                let mut attempts = attempts.lock();
                attempts.is_reported = true;
                let cost = ReadCost {
                    wire_bytes: attempts.wire_bytes,
                    requests: attempts.requests,
                    retries: retries.count,
                    hedges: attempts.hedges,
                    ..ReadCost::default()
                };
                return Ok((into, cost));
            };
            let retry_after = attempts.lock().retry_after.take();
            let wait = match failure.kind().is_transient() {
                true => retries.next(retry_after.unwrap_or_default()),
                false => None,
            };
            let Some(wait) = wait else {
                if !failure.kind().is_transient() {
                    return Err(self.not_found_or(key, failure).await);
                }
                let retry_after = retry_after.map_or_else(String::new, |retry_after| {
                    format!("; it asked to retry after {} s", retry_after.as_secs())
                });
                let (cause, tried, got) = (failure.detail(), retries.describe_attempts(), into.len());
                let detail = format!("{cause}{retry_after}; {tried} with {got} of {len} bytes");
                return Err(failure.kind().error(failure.object(), detail));
            };
            tracing::debug!("retrying from byte {}: {failure}", range.start + into.len() as u64);
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns `failure`, or `NotFound` if the object is gone: Azure's emulator reports a missing object as another
    /// version.
    async fn not_found_or(&self, key: &Key, failure: StorageError) -> StorageError {
        if self.place.service != Service::Azure || failure.kind() != ErrorKind::Changed {
            return failure;
        }
        match self.head(key).await {
            Err(not_found) if not_found.kind() == ErrorKind::NotFound => not_found,
            _ => failure,
        }
    }

    /// Makes one GET of the missing bytes and appends them to `into` as they arrive.
    async fn attempt(
        &self,
        wanted: &Wanted<'_>,
        rest: Range<u64>,
        into: &mut BytesMut,
        attempts: &Attempts,
    ) -> Result<(), StorageError> {
        let Wanted { key, version, size, .. } = *wanted;
        let mut missing = rest.end - rest.start;
        let mut options = GetOptions {
            range: Some(rest.into()),
            ..GetOptions::default()
        };
        // A weak tag never matches under If-Match; then only the reply's tag is checked below.
        options.if_match = version.get().filter(|version| version.starts_with('"')).cloned();
        options.extensions.insert(attempts.clone());
        let hedging = self.hedging.as_ref();
        let result = reply(hedging, &self.reads, key, options, (missing, attempts)).await;
        let result = result.map_err(|e| self.error(key, &e))?;
        if let Some(size) = size.filter(|size| *size != result.meta.size) {
            let detail = format!(": object has {} bytes instead of {size}", result.meta.size);
            return Err(self.fault(ErrorKind::Corrupt, key, &detail));
        }
        let found = self.version_of(&result.meta);
        let version = version.get_or_init(|| found.clone());
        if found != *version {
            let detail = format!(" has version {found} instead of {version}");
            return Err(self.fault(ErrorKind::Changed, key, &detail));
        }
        let mut body = result.into_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|e| self.error(key, &e))?;
            attempts.lock().wire_bytes += chunk.len() as u64;
            let unexpected = || self.fault(ErrorKind::Unavailable, key, " sent more bytes than requested");
            missing = missing.checked_sub(chunk.len() as u64).ok_or_else(unexpected)?;
            into.extend_from_slice(&chunk);
        }
        if missing > 0 {
            let detail = format!(" ended its reply {missing} bytes early");
            return Err(self.fault(ErrorKind::Unavailable, key, &detail));
        }
        Ok(())
    }
}
