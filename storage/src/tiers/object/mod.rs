//! Tier over a bucket of S3 or a compatible server, Google Cloud Storage or Azure Blob Storage, through `object_store`.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up, which is its ETag. Every GET is
//! conditional on the ETag, so a replaced object is an error and never a mix. Large ranges are cut into parallel GETs,
//! each a task that streams into its slice of a shared buffer; many small ranges are joined over small gaps. Knows
//! nothing of caches.
//!
//! Costs: `requests` are the HTTP requests sent, among them `retries` after a failure and `hedges` sent a second time.
//! `wire_bytes` are the body bytes received, gaps included, without HTTP headers, plus the bytes that losing hedges
//! requested. `queue` is the wait for one of `concurrency` slots. `device` runs from sending a GET to its last byte,
//! including retries and backoff. `copy` is the time to cut small parts out of larger replies. Bytes are copied once on
//! arrival, which counts as `device`.

use crate::deadline;
use crate::limits::{Listing, buffer_for, check_ranges, rejoin, split_front};
use crate::ranges::{self, Span};
use crate::tasks::concurrently;
use crate::tiers::{check_not_zero, cut, number};
use crate::unreported::PendingCost;
use crate::{Body, ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bucket::{Bucket, is_access_denied};
use bytes::{Bytes, BytesMut};
use fetch::Wanted;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::Semaphore;

mod attempts;
mod bucket;
mod client;
mod fetch;
mod hedge;
mod put;
mod service;
mod xml;

/// Tier over a bucket.
#[derive(Debug)]
pub struct BucketTier {
    bucket: Arc<Bucket>,
    slots: Arc<Semaphore>,
    config: BucketConfig,
    notes: Vec<String>,
}

impl BucketTier {
    /// Builds the client and lists the bucket, so that a wrong bucket, endpoint or credential fails now. A bucket
    /// without permission to list is accepted.
    ///
    /// # Errors
    /// Fails if the config is inconsistent, the bucket does not exist, or the endpoint does not answer.
    pub async fn connect(config: &BucketConfig) -> Result<Self, StorageError> {
        let keys = [
            ("concurrency", u64::from(config.concurrency)),
            ("part_bytes", config.part_bytes),
        ];
        check_not_zero(&service::Place::of(config)?.to_string(), &keys)?;
        let bucket = Bucket::new(config)?;
        let mut notes = Vec::new();
        if config.hedge_after_quantile.is_some() {
            notes.push("hedged reads".to_owned());
        }
        if config.anonymous {
            notes.push("unsigned requests".to_owned());
        }
        let prefix = bucket.list_prefix(None)?;
        let first = async {
            match bucket.store.list(prefix.as_ref()).next().await.transpose() {
                Err(e) if is_access_denied(&e) => Ok(false),
                listed => listed.map(|_| true),
            }
        };
        if !bucket.within(&Key::default(), first).await? {
            notes.push("the bucket cannot be listed".to_owned());
        }
        Ok(Self {
            bucket: Arc::new(bucket),
            slots: Arc::new(Semaphore::new(config.concurrency as usize)),
            config: config.clone(),
            notes,
        })
    }

    fn describe(&self, path: ObjectPath, meta: &ObjectMeta) -> Object {
        let (size, version) = (meta.size, self.bucket.version_of(meta));
        Object { path, size, version }
    }

    /// Reads the spans of a version, or of an object of a given size. Returns their bytes in order, with the cost.
    async fn fetch(
        &self,
        key: &Key,
        (version, size): (Option<&str>, Option<u64>),
        spans: &[Span],
    ) -> Result<(Vec<Bytes>, ReadCost), StorageError> {
        let version = Arc::new(version.map(str::to_owned).map_or_else(OnceLock::new, OnceLock::from));
        // Read here, because the tasks below do not inherit it.
        let deadline = deadline::current();
        let mut gets = Vec::new();
        for (of, span) in spans.iter().enumerate() {
            let mut rest = buffer_for(&self.bucket.object(key), span.bytes.end - span.bytes.start)?;
            for range in ranges::pieces(&span.bytes, self.config.part_bytes) {
                let into = split_front(&mut rest, (range.end - range.start) as usize);
                let (bucket, slots) = (Arc::clone(&self.bucket), Arc::clone(&self.slots));
                let (key, version) = (key.clone(), Arc::clone(&version));
                gets.push(async move {
                    let wanted = Wanted {
                        key: &key,
                        version: &version,
                        size,
                        range,
                        deadline,
                    };
                    let (bytes, cost) = get(&bucket, &slots, wanted, into).await?;
                    Ok::<_, StorageError>((of, bytes, cost))
                });
            }
        }
        let mut cost = PendingCost::new(&self.bucket.unreported);
        let parts = concurrently(key.as_ref(), gets, |(_, _, of_get)| cost.add(of_get)).await?;
        let mut buffers = vec![BytesMut::new(); spans.len()];
        for (of, bytes, _) in parts {
            rejoin(&mut buffers[of], bytes);
        }
        Ok((buffers.into_iter().map(BytesMut::freeze).collect(), cost.report()))
    }
}

/// Makes a GET once a slot is free. `into` has capacity for exactly the range.
async fn get(
    bucket: &Bucket,
    slots: &Semaphore,
    wanted: Wanted<'_>,
    into: BytesMut,
) -> Result<(BytesMut, ReadCost), StorageError> {
    let queued = Instant::now();
    // The semaphore is never closed.
    let slot = match wanted.deadline {
        None => slots.acquire().await,
        Some(deadline) => {
            let slot = tokio::time::timeout_at(deadline.into(), slots.acquire()).await;
            let detail = ": no free slot for a GET in time; raise `concurrency`";
            slot.map_err(|_| bucket.fault(ErrorKind::Timeout, wanted.key, detail))?
        }
    };
    let sent = Instant::now();
    let (bytes, of_get) = bucket.get(wanted, into).await?;
    drop(slot);
    let cost = ReadCost {
        via: ViaSet::of(Via::Http),
        queue: sent - queued,
        device: sent.elapsed(),
        ..of_get
    };
    Ok((bytes, cost))
}

#[async_trait]
impl Tier for BucketTier {
    fn info(&self) -> TierInfo {
        let kind = self.bucket.place.service.kind();
        TierInfo::new(kind, self.bucket.location(), self.notes.clone())
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let meta = self.bucket.head(&self.bucket.key(path)?).await?;
        Ok(self.describe(path.clone(), &meta))
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let key = self.bucket.key(&object.path)?;
        let spans = ranges::spans(ranges, self.config.coalesce_bytes);
        let (replies, mut cost) = self.fetch(&key, (Some(&object.version), None), &spans).await?;
        let began = Instant::now();
        let mut parts = vec![Bytes::new(); ranges.len()];
        for (span, reply) in spans.iter().zip(replies) {
            for &i in &span.answers {
                let at = |offset: u64| (offset - span.bytes.start) as usize;
                parts[i] = cut(&reply, at(ranges[i].start)..at(ranges[i].end));
            }
        }
        cost.copy += began.elapsed();
        Ok(ReadMany { parts, cost })
    }

    async fn read_whole(&self, path: &ObjectPath, bytes: u64) -> Result<Read, StorageError> {
        let key = self.bucket.key(path)?;
        let spans = ranges::spans(std::slice::from_ref(&(0..bytes)), self.config.coalesce_bytes);
        let (mut replies, cost) = self.fetch(&key, (None, Some(bytes)), &spans).await?;
        let bytes = replies.pop().unwrap_or_default();
        Ok(Read { bytes, cost })
    }

    fn take_unreported(&self) -> Option<ReadCost> {
        self.bucket.unreported.take()
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let within = self.bucket.list_prefix(prefix)?;
        let key = within.clone().unwrap_or_default();
        let mut listing = Listing::of(self.bucket.object(&key));
        let mut pages = self.bucket.store.list(within.as_ref());
        while let Some(meta) = self.bucket.within(&key, pages.try_next()).await? {
            match self.bucket.path(&meta.location) {
                Some(path) => listing.push(self.describe(path, &meta))?,
                None => {
                    tracing::warn!(key = %meta.location, "skipped in listing: not a valid object path");
                    listing.named(meta.location.as_ref().len())?;
                }
            }
        }
        // A bucket's listing has only objects below the prefix; an object at the prefix itself is added.
        if let Some(path) = prefix {
            match self.stat(path).await {
                Ok(object) => listing.push(object)?,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(listing.end())
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let key = self.bucket.key(path)?;
        let (size, tag) = put::put(&self.bucket, &key, body, &self.config).await?;
        match tag {
            Some(version) => {
                let path = path.clone();
                Ok(Object { path, size, version })
            }
            None => self.stat(path).await,
        }
    }

    fn put_requests(&self, bytes: u64) -> u32 {
        put::requests(bytes, &self.config)
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let key = self.bucket.key(path)?;
        // A service's reply to DELETE is the same for missing objects.
        self.bucket.head(&key).await?;
        self.bucket.within(&key, self.bucket.store.delete(&key)).await
    }
}

/// Bucket of S3 or a compatible server, Google Cloud Storage or Azure Blob Storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BucketConfig {
    /// Bucket and prefix: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
    pub url: Option<String>,
    /// S3 bucket, instead of `url`.
    pub bucket: Option<String>,
    /// Prefix inside `bucket`.
    pub prefix: Option<String>,
    /// Storage account of `az://` (default: from the environment).
    pub account: Option<String>,
    /// S3 region (default: from the environment).
    pub region: Option<String>,
    /// Endpoint of a compatible server (default: the service's own endpoint).
    pub endpoint: Option<String>,
    /// If true, the bucket name is part of the host name instead of the path (virtual-hosted style).
    #[serde(default)]
    pub virtual_host: bool,
    /// File of PEM certificates of authorities to trust for the endpoint, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// If true, sends requests unsigned.
    #[serde(default)]
    pub anonymous: bool,
    /// File of credentials, instead of the environment: AWS profiles, JSON of a Google service account, or the key of
    /// an Azure account.
    pub credentials_file: Option<PathBuf>,
    /// Profile in `credentials_file` (default: `default`).
    pub profile: Option<String>,
    /// If true, allows plain HTTP, for embedded and test origins.
    #[serde(default)]
    pub allow_http: bool,
    /// Maximum range GETs in flight.
    #[serde(default = "number::<32, u32>")]
    pub concurrency: u32,
    /// Bytes per range GET of a large object.
    #[serde(default = "number::<{ 8 << 20 }, u64>")]
    pub part_bytes: u64,
    /// Maximum gap between ranges of a read that are requested as one, in bytes.
    #[serde(default = "number::<{ 64 << 10 }, u64>")]
    pub coalesce_bytes: u64,
    /// Maximum retries of a request.
    #[serde(default = "number::<3, u32>")]
    pub retries: u32,
    /// Time limit of a request with its retries, in milliseconds.
    #[serde(default = "number::<5_000, u64>")]
    pub timeout_ms: u64,
    /// Time limit of an attempt at a GET, in milliseconds, plus the time of its bytes at `min_bytes_per_s`. At the
    /// limit the attempt ends, and the next attempt continues from the byte reached.
    #[serde(default = "number::<1_000, u64>")]
    pub attempt_ms: u64,
    /// Minimum speed of an attempt, in bytes per second. A slower attempt is given up.
    #[serde(default = "number::<4_000_000, u64>")]
    pub min_bytes_per_s: u64,
    /// Quantile of recent reply times after which a GET is sent a second time; the first reply is read. Both count as
    /// requests (default: no hedging).
    pub hedge_after_quantile: Option<f64>,
    /// Maximum share of GETs that hedging sends a second time.
    #[serde(default = "default_hedge_max_share")]
    pub hedge_max_share: f64,
}

impl BucketConfig {
    /// URL of the server that answers for the bucket; `None` if only the environment names it.
    pub fn address(&self) -> Option<String> {
        let region = self.region.as_deref().unwrap_or("us-east-1");
        let default_endpoint = || match service::Place::of(self).ok()?.service {
            service::Service::S3 => Some(format!("https://s3.{region}.amazonaws.com")),
            service::Service::Google => Some("https://storage.googleapis.com".to_owned()),
            service::Service::Azure => Some(format!("https://{}.blob.core.windows.net", self.account.as_ref()?)),
        };
        self.endpoint.clone().or_else(default_endpoint)
    }

    /// Refuses a config without a bucket, and keys that its service does not support.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        service::Place::of(self).map(drop)
    }

    /// Kind of the service in results: `s3`, `gcs` or `azure`.
    pub(crate) fn kind(&self) -> &'static str {
        service::Place::of(self).map_or("s3", |place| place.service.kind())
    }
}

const fn default_hedge_max_share() -> f64 {
    0.05
}
