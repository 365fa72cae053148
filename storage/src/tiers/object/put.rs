//! Writes: one PUT for a small body, a multipart upload for a large body. In: a body. Out: its size and ETag.

use super::BucketConfig;
use super::bucket::Bucket;
use crate::tasks::clean_up;
use crate::tiers::source::Source;
use crate::{Body, ErrorKind, StorageError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload, PutResult};
use std::sync::Arc;

/// S3's minimum size of a part, except the last.
const MIN_PART_BYTES: u64 = 5 << 20;
/// S3's maximum number of parts of an upload.
const MAX_PARTS: u64 = 10_000;
/// Maximum parts in memory and in flight.
const PARTS_IN_FLIGHT: usize = 4;

/// Bytes of each part of an object of `size` bytes.
fn part_bytes(size: u64, config: &BucketConfig) -> u64 {
    config.part_bytes.max(MIN_PART_BYTES).max(size.div_ceil(MAX_PARTS))
}

/// Number of requests that write an object, without retries.
pub(super) fn requests(size: u64, config: &BucketConfig) -> u32 {
    let parts = size.div_ceil(part_bytes(size, config)) as u32;
    // A request each begins and completes an upload of several parts.
    if parts > 1 { parts + 2 } else { 1 }
}

/// Writes an object and returns its size and, if the server sends it, its ETag.
pub(super) async fn put(
    bucket: &Arc<Bucket>,
    key: &Key,
    body: Body,
    config: &BucketConfig,
) -> Result<(u64, Option<String>), StorageError> {
    let source = Source::open(body).await?;
    let size = source.size;
    let part_bytes = part_bytes(size, config);
    let result = if size <= part_bytes {
        let payload = PutPayload::from_bytes(source.piece(0, size).await?);
        bucket.within(key, bucket.store.put(key, payload)).await?
    } else {
        let mut upload = Upload::begin(Arc::clone(bucket), key.clone()).await?;
        let concurrency = PARTS_IN_FLIGHT.min(config.concurrency as usize);
        upload.send(&source, part_bytes, concurrency).await?
    };
    Ok((size, result.e_tag))
}

/// Multipart upload that is aborted if it is dropped before its end.
struct Upload {
    bucket: Arc<Bucket>,
    key: Key,
    inner: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    /// Starts an upload on its own task. If the caller goes away, the task still receives the upload's id and drops the
    /// upload, which aborts it.
    async fn begin(bucket: Arc<Bucket>, key: Key) -> Result<Self, StorageError> {
        let name = key.to_string();
        let result = tokio::spawn(async move {
            let inner = Some(bucket.within(&key, bucket.store.put_multipart(&key)).await?);
            Ok(Self { bucket, key, inner })
        });
        let result = result.await;
        result.map_err(|e| ErrorKind::Unavailable.error(name, e.to_string()))?
    }

    async fn send(&mut self, source: &Source, part_bytes: u64, concurrency: usize) -> Result<PutResult, StorageError> {
        let ended = || ErrorKind::Unavailable.error(self.key.as_ref(), "the upload has ended already");
        let upload = self.inner.as_mut().ok_or_else(ended)?;
        let mut uploads = FuturesUnordered::new();
        let mut at = 0;
        while at < source.size {
            let bytes = source.piece(at, part_bytes).await?;
            at += bytes.len() as u64;
            let part = upload.put_part(PutPayload::from_bytes(bytes));
            uploads.push(self.bucket.within(&self.key, part));
            if uploads.len() >= concurrency.max(1)
                && let Some(done) = uploads.next().await
            {
                done?;
            }
        }
        while let Some(done) = uploads.next().await {
            done?;
        }
        drop(uploads);
        let result = self.bucket.within(&self.key, upload.complete()).await?;
        self.inner = None;
        Ok(result)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.inner.take() else { return };
        let (bucket, key) = (Arc::clone(&self.bucket), self.key.clone());
        clean_up(async move {
            match bucket.within(&key, upload.abort()).await {
                // The last call completed the upload, but its reply was lost.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => tracing::warn!("cannot abort an unfinished upload: {e}"),
                Ok(()) => {}
            }
        });
    }
}
