//! Contents of a cache, and fetches of missing extents. In: extents of objects. Out: their bytes, fetched once.

use super::{CacheConfig, ENTRY_BYTES, Policy};
use crate::metrics::CacheMetrics;
use crate::ranges;
use crate::wrappers::Fetched;
use crate::wrappers::single_flight::{Boarded, ExtentKey, Lead, SingleFlight};
use crate::{Object, ReadCost, StorageError, Tier};
use bytes::Bytes;
use futures::FutureExt as _;
use moka::future::CacheBuilder;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierlab_protocol::via::Via;

/// Divisor of the capacity that gives the window of newest extents in a `tiny-lfu` cache (Einziger, Friedman and Manes,
/// *TinyLFU*, ACM Transactions on Storage 13(4), 2017, use 1 %). In simulations, a fifth costs less than one point of
/// hits if popularity is fixed, and gains four to eight if it shifts.
const WINDOW_PART: u64 = 5;

type Extents = moka::future::Cache<ExtentKey, CachedExtent>;

/// Extent with the time of its fetch, which it keeps when it moves from the window to the rest of the cache.
#[derive(Clone)]
struct CachedExtent {
    bytes: Bytes,
    fetched: Instant,
}

/// Extents and fetches of a cache.
pub(super) struct CachedExtents {
    pub(super) inner: Arc<dyn Tier>,
    /// The cache and, under `tiny-lfu`, the window before it. Fetched extents enter the last element; extents evicted
    /// from the window are then admitted to the first or dropped. Without a window, a just-fetched extent would be
    /// refused for its few requests, and a scan would fetch it again for each of its rows. Look-ups begin with the
    /// first element, so that its policy counts all of them.
    extents: Vec<Extents>,
    ttl: Option<Duration>,
    flights: Arc<SingleFlight<Fetched>>,
    capacity_bytes: u64,
    metrics: CacheMetrics,
    /// Contribution of this cache to the gauge of held bytes, which several caches may share.
    reported_bytes: AtomicU64,
}

impl CachedExtents {
    pub(super) fn new(inner: Arc<dyn Tier>, config: &CacheConfig, metrics: CacheMetrics) -> Self {
        let ttl = config.ttl_ms.map(Duration::from_millis);
        let (window, policy) = match config.policy {
            Policy::TinyLfu => {
                let window = (config.capacity_bytes / WINDOW_PART).max(config.block_bytes + ENTRY_BYTES);
                (window, EvictionPolicy::tiny_lfu())
            }
            Policy::Lru => (0, EvictionPolicy::lru()),
        };
        let evictions = metrics.evictions.clone();
        let mut extents = vec![
            extents_within(config.capacity_bytes - window, ttl)
                .eviction_policy(policy)
                .eviction_listener(move |_, _, cause| {
                    if cause.was_evicted() {
                        evictions.inc();
                    }
                })
                .build(),
        ];
        if window > 0 {
            let behind = extents[0].clone();
            let window = extents_within(window, ttl)
                .eviction_policy(EvictionPolicy::lru())
                .async_eviction_listener(move |key, extent, cause| {
                    let behind = behind.clone();
                    async move {
                        if cause == RemovalCause::Size {
                            behind.insert((*key).clone(), extent).await;
                        }
                    }
                    .boxed()
                });
            extents.push(window.build());
        }
        metrics.capacity_bytes.add(config.capacity_bytes.cast_signed());
        Self {
            inner,
            extents,
            ttl,
            flights: Arc::default(),
            capacity_bytes: config.capacity_bytes,
            metrics,
            reported_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes of an extent; `None` if not cached.
    pub(super) async fn get(&self, key: &ExtentKey) -> Option<Bytes> {
        let is_fresh = |extent: &CachedExtent| self.ttl.is_none_or(|ttl| extent.fetched.elapsed() < ttl);
        for extents in &self.extents {
            if let Some(extent) = extents.get(key).await.filter(is_fresh) {
                return Some(extent.bytes);
            }
        }
        None
    }

    /// Drops an extent. Later callers do not join a fetch of it that is in flight.
    pub(super) async fn forget(&self, key: &ExtentKey) {
        self.flights.forget(key);
        // The window first: an extent that it evicts meanwhile is then dropped from the rest.
        for extents in self.extents.iter().rev() {
            extents.invalidate(key).await;
        }
    }

    /// Counts the look-ups of a call.
    pub(super) fn record(&self, cost: &ReadCost, joined: u64) {
        self.metrics.hits.inc_by(u64::from(cost.cache_hits));
        self.metrics.misses.inc_by(u64::from(cost.cache_misses));
        self.metrics.joined.inc_by(joined);
    }

    /// Joins fetches in flight for `missing` extents (ascending), and starts a fetch of the others.
    pub(super) fn board(self: &Arc<Self>, object: &Object, missing: Vec<ExtentKey>) -> Boarded<Fetched> {
        let mut boarded = self.flights.board(missing);
        if let Some(lead) = boarded.lead.take() {
            let (kept, object) = (self.clone(), object.clone());
            tokio::spawn(async move { kept.fetch(&object, lead).await });
        }
        boarded
    }

    /// Runs a fetch on its own task.
    async fn fetch(&self, object: &Object, mut lead: Lead<Fetched>) {
        let landed = self.fetch_extents(object, &lead.keys).await;
        // The extents are cached now, so later callers find them in the cache.
        lead.leave();
        lead.answer()(landed.map(Arc::new));
        self.report_bytes().await;
    }

    async fn fetch_extents(&self, object: &Object, keys: &[ExtentKey]) -> Result<Fetched, StorageError> {
        let mut landed = Fetched::default();
        let mut fetched = Vec::with_capacity(keys.len());
        for key in keys {
            // Another fetch may have ended between the look-up and the joining. Only then is it looked up again,
            // because the policy counts a look-up as a request.
            let is_held = self.extents.iter().any(|extents| extents.contains_key(key));
            let held = if is_held { self.get(key).await } else { None };
            if let Some(bytes) = held {
                landed.parts.push((key.extent.clone(), bytes));
                landed.cost.via.insert(Via::Memory);
            } else {
                fetched.push(key);
            }
        }
        if fetched.is_empty() {
            return Ok(landed);
        }
        let extents: Vec<_> = fetched.iter().map(|key| key.extent.clone()).collect();
        let runs = ranges::adjacent(&extents);
        let read = self.inner.read_many(object, &runs).await?;
        landed.cost.merge(&read.cost);
        let mut pieces = runs.iter().zip(&read.parts).peekable();
        for key in fetched {
            let extent = key.extent.clone();
            // Runs and keys are in the same order: the next run that extends to the key's end holds it.
            while pieces.next_if(|(run, _)| run.end < extent.end).is_some() {}
            let Some((run, bytes)) = pieces.peek() else {
                break;
            };
            let (from, to) = (extent.start - run.start, extent.end - run.start);
            if to > bytes.len() as u64 {
                continue;
            }
            let copying = Instant::now();
            // A separate copy: a slice would keep the whole read in memory as long as one of its extents lives.
            let bytes = Bytes::copy_from_slice(&bytes[from as usize..to as usize]);
            landed.cost.copy += copying.elapsed();
            let fetched = Instant::now();
            if let Some(extents) = self.extents.last() {
                let bytes = bytes.clone();
                extents.insert(key.clone(), CachedExtent { bytes, fetched }).await;
            }
            landed.parts.push((extent, bytes));
        }
        Ok(landed)
    }

    /// Updates the gauge. Housekeeping runs first, which also bounds moka's queue.
    async fn report_bytes(&self) {
        for extents in self.extents.iter().rev() {
            extents.run_pending_tasks().await;
        }
        let held: u64 = self.extents.iter().map(Extents::weighted_size).sum();
        let told = self.reported_bytes.swap(held, Ordering::Relaxed);
        self.metrics.bytes.add(held.cast_signed() - told.cast_signed());
    }
}

/// Builder of a cache limited to `capacity` bytes including bookkeeping.
fn extents_within(capacity: u64, ttl: Option<Duration>) -> CacheBuilder<ExtentKey, CachedExtent, Extents> {
    let weight = |_: &ExtentKey, extent: &CachedExtent| {
        u32::try_from(extent.bytes.len() as u64 + ENTRY_BYTES).unwrap_or(u32::MAX)
    };
    let extents = Extents::builder().max_capacity(capacity).weigher(weight);
    match ttl {
        Some(ttl) => extents.time_to_live(ttl),
        None => extents,
    }
}

impl Drop for CachedExtents {
    fn drop(&mut self) {
        let reported = self.reported_bytes.load(Ordering::Relaxed);
        self.metrics.bytes.sub(reported.cast_signed());
        self.metrics.capacity_bytes.sub(self.capacity_bytes.cast_signed());
    }
}
