//! Cache of object parts in memory. In: reads. Out: the same bytes; cached parts are not read from the tier.
//!
//! - Keyed by path, version and extent: a changed object gets new keys, so a hit is always of the requested version.
//!   Cached bytes of a version stay readable after the object has changed.
//! - All extents that a call misses go to the tier as one `read_many`, adjacent extents joined.
//! - Concurrent callers of an extent share one fetch. The fetch has its own task: it goes on when the call that began
//!   it is dropped. Its error reaches every waiting caller, and is not cached.
//! - A range of more than [`BYPASS_BLOCKS`] blocks bypasses the cache: a model file would only displace rows.

use super::Fetched;
use super::single_flight::{ExtentKey, Lead, SharedFetches, SingleFlight, VersionKey, share_of};
use crate::limits::check_ranges;
use crate::metrics::CacheMetrics;
use crate::ranges;
use crate::{ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::try_join;
use moka::future::CacheBuilder;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierlab_protocol::via::Via;

/// Maximum number of blocks that a cached range touches or spans; longer ranges bypass the cache.
pub const BYPASS_BLOCKS: u64 = 64;
/// Tier behind a cache.
pub struct Cache {
    extents: Arc<CachedExtents>,
    config: CacheConfig,
}

impl Cache {
    /// Wraps a tier.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names the key.
    pub fn new(inner: Arc<dyn Tier>, config: &CacheConfig, metrics: CacheMetrics) -> Result<Self, StorageError> {
        config.check()?;
        Ok(Self {
            extents: Arc::new(CachedExtents::new(inner, config, metrics)),
            config: *config,
        })
    }

    /// Extents that cover a range, in order.
    fn extents_of(&self, object: &Object, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let (range, size) = (range.clone(), object.size);
        let block = (self.config.granularity == Granularity::Block).then_some(self.config.block_bytes);
        let numbers = match block {
            Some(block) => ranges::blocks(&range, block),
            None => 0..u64::from(!range.is_empty()),
        };
        numbers.map(move |at| match block {
            Some(block) => ranges::block(at, block, size),
            None => range.clone(),
        })
    }

    fn bypasses(&self, range: &Range<u64>) -> bool {
        let block = self.config.block_bytes;
        let blocks = match self.config.granularity {
            Granularity::Block => range.end.div_ceil(block) - range.start / block,
            Granularity::Range => (range.end - range.start).div_ceil(block),
        };
        blocks > BYPASS_BLOCKS
    }

    /// Gets the needed extents, ascending, from cache and tier. Also returns the time spent waiting for the tier.
    async fn gather(&self, object: &Object, needed: &[Range<u64>]) -> Result<(Fetched, Duration), StorageError> {
        let version = VersionKey::of(object);
        let mut gathered = Fetched::default();
        let mut missing: Vec<ExtentKey> = Vec::new();
        for extent in needed {
            let key = version.extent(extent);
            match self.extents.get(&key).await {
                Some(bytes) => gathered.parts.push((extent.clone(), bytes)),
                None => missing.push(key),
            }
        }
        gathered.cost.cache_hits = count(needed.len() - missing.len());
        gathered.cost.cache_misses = count(missing.len());
        if gathered.cost.cache_hits > 0 {
            gathered.cost.via.insert(Via::Memory);
        }
        if missing.is_empty() {
            self.extents.record(&gathered.cost, 0);
            return Ok((gathered, Duration::ZERO));
        }
        let shared = self.extents.join(object, missing);
        self.extents.record(&gathered.cost, shared.joined);
        let waiting = Instant::now();
        for ticket in &shared.tickets {
            let data = ticket.result(object).await?;
            let share = share_of(&data.cost, ticket.led, waiting.elapsed());
            gathered.cost.merge(&share);
            // The fetch of another call may have many extents that this call does not need.
            let order = |extent: &Range<u64>| (extent.start, extent.end);
            let is_needed = |extent: &Range<u64>| needed.binary_search_by_key(&order(extent), order).is_ok();
            let parts = data.parts.iter().filter(|(extent, _)| is_needed(extent));
            gathered.parts.extend(parts.cloned());
        }
        gathered.sort();
        Ok((gathered, waiting.elapsed()))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[async_trait]
impl Tier for Cache {
    fn info(&self) -> TierInfo {
        let mut info = self.extents.inner.info();
        let config = &self.config;
        let mut name = format!("cache({} bytes, ", config.capacity_bytes);
        let _ = match config.granularity {
            Granularity::Block => write!(name, "blocks of {}", config.block_bytes),
            Granularity::Range => write!(name, "ranges as requested"),
        };
        if config.policy == Policy::Lru {
            name += ", lru";
        }
        if let Some(ttl_ms) = config.ttl_ms {
            let _ = write!(name, ", for {ttl_ms} ms");
        }
        info.wrappers.insert(0, format!("{name})"));
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.extents.inner.stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        check_ranges(object, std::slice::from_ref(&range))?;
        // A read that bypasses the cache uses the tier's own method of reading a large range.
        if self.bypasses(&range) {
            return self.extents.inner.read(object, range).await;
        }
        Ok(self.read_many(object, &[range]).await?.into_single())
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let started = Instant::now();
        let bypassing: Vec<_> = ranges.iter().filter(|range| self.bypasses(range)).cloned().collect();
        let through = ranges.iter().filter(|range| !self.bypasses(range));
        let mut needed: Vec<_> = through.flat_map(|range| self.extents_of(object, range)).collect();
        needed.sort_unstable_by_key(|extent| (extent.start, extent.end));
        needed.dedup();
        let bypass = async {
            if bypassing.is_empty() {
                return Ok((ReadMany::default(), Duration::ZERO));
            }
            let started = Instant::now();
            let read = self.extents.inner.read_many(object, &bypassing).await?;
            Ok((read, started.elapsed()))
        };
        let ((gathered, waited), (bypassing, bypass_wait)) = try_join(self.gather(object, &needed), bypass).await?;
        let mut cost = gathered.cost;
        cost.merge(&bypassing.cost);
        let mut bypassing = bypassing.parts.into_iter();
        let parts = ranges.iter().map(|range| match self.bypasses(range) {
            true => Ok(bypassing.next().unwrap_or_default()),
            false => gathered.cut(object, range),
        });
        let parts = parts.collect::<Result<_, _>>()?;
        cost.cache = started.elapsed().saturating_sub(waited.max(bypass_wait));
        Ok(ReadMany { parts, cost })
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.extents.inner)
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        let version = VersionKey::of(object);
        for extent in ranges.iter().flat_map(|range| self.extents_of(object, range)) {
            self.extents.forget(&version.extent(&extent)).await;
        }
        self.extents.inner.forget(object, ranges).await;
    }
}

/// Divisor of the capacity that gives the window of newest extents in a `tiny-lfu` cache (Einziger, Friedman and Manes,
/// *TinyLFU*, ACM Transactions on Storage 13(4), 2017, use 1 %). In simulations, a fifth costs less than one point of
/// hits if popularity is fixed, and gains four to eight if it shifts.
const WINDOW_DIVISOR: u64 = 5;

type Extents = moka::future::Cache<ExtentKey, CachedExtent>;

/// Extent with the time of its fetch, which it keeps when it moves from the window to the rest of the cache.
#[derive(Clone)]
struct CachedExtent {
    bytes: Bytes,
    fetched: Instant,
}

/// Extents and fetches of a cache.
struct CachedExtents {
    inner: Arc<dyn Tier>,
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
    fn new(inner: Arc<dyn Tier>, config: &CacheConfig, metrics: CacheMetrics) -> Self {
        let ttl = config.ttl_ms.map(Duration::from_millis);
        let (window, policy) = match config.policy {
            Policy::TinyLfu => {
                let window = (config.capacity_bytes / WINDOW_DIVISOR).max(config.block_bytes + ENTRY_BYTES);
                (window, EvictionPolicy::tiny_lfu())
            }
            Policy::Lru => (0, EvictionPolicy::lru()),
        };
        let evictions = metrics.evictions.clone();
        let expired = evictions.clone();
        let mut extents = vec![
            // Not 0 bytes, of which the library counts no evictions.
            extents_within((config.capacity_bytes - window).max(1), ttl)
                .eviction_policy(policy)
                .eviction_listener(move |_, _, cause| {
                    if cause.was_evicted() {
                        evictions.inc();
                    }
                })
                .build(),
        ];
        if window > 0 {
            let main = extents[0].clone();
            let window = extents_within(window, ttl)
                .eviction_policy(EvictionPolicy::lru())
                .async_eviction_listener(move |key, extent, cause| {
                    if cause == RemovalCause::Expired {
                        expired.inc();
                    }
                    let main = main.clone();
                    async move {
                        if cause == RemovalCause::Size {
                            main.insert((*key).clone(), extent).await;
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
    async fn get(&self, key: &ExtentKey) -> Option<Bytes> {
        let is_fresh = |extent: &CachedExtent| self.ttl.is_none_or(|ttl| extent.fetched.elapsed() < ttl);
        for extents in &self.extents {
            if let Some(extent) = extents.get(key).await.filter(is_fresh) {
                return Some(extent.bytes);
            }
        }
        None
    }

    /// Drops an extent. Later callers do not join a fetch of it that is in flight.
    async fn forget(&self, key: &ExtentKey) {
        self.flights.forget(key);
        // The window first: an extent that it evicts meanwhile is then dropped from the rest.
        for extents in self.extents.iter().rev() {
            extents.invalidate(key).await;
        }
    }

    /// Counts the look-ups of a call.
    fn record(&self, cost: &ReadCost, joined: u64) {
        self.metrics.hits.inc_by(u64::from(cost.cache_hits));
        self.metrics.misses.inc_by(u64::from(cost.cache_misses));
        self.metrics.joined.inc_by(joined);
    }

    /// Joins fetches in flight for `missing` extents (ascending), and starts a fetch of the others.
    fn join(self: &Arc<Self>, object: &Object, missing: Vec<ExtentKey>) -> SharedFetches<Fetched> {
        let mut shared = self.flights.join(missing);
        if let Some(lead) = shared.lead.take() {
            let (cache, object) = (self.clone(), object.clone());
            tokio::spawn(async move { cache.fetch(&object, lead).await });
        }
        shared
    }

    /// Runs a fetch on its own task.
    async fn fetch(&self, object: &Object, mut lead: Lead<Fetched>) {
        let data = self.fetch_extents(object, &lead.keys).await;
        // The extents are cached now, so later callers find them in the cache.
        lead.leave();
        lead.answer()(data.map(Arc::new));
        self.report_bytes().await;
    }

    async fn fetch_extents(&self, object: &Object, keys: &[ExtentKey]) -> Result<Fetched, StorageError> {
        let mut data = Fetched::default();
        let mut fetched = Vec::with_capacity(keys.len());
        for key in keys {
            // Another fetch may have ended between the look-up and the joining. Only then is it looked up again,
            // because the policy counts a look-up as a request.
            let is_held = self.extents.iter().any(|extents| extents.contains_key(key));
            let held = if is_held { self.get(key).await } else { None };
            if let Some(bytes) = held {
                data.parts.push((key.extent.clone(), bytes));
                data.cost.via.insert(Via::Memory);
            } else {
                fetched.push(key);
            }
        }
        if fetched.is_empty() {
            return Ok(data);
        }
        let extents: Vec<_> = fetched.iter().map(|key| key.extent.clone()).collect();
        let runs = ranges::adjacent(&extents);
        let read = self.inner.read_many(object, &runs).await?;
        data.cost.merge(&read.cost);
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
            data.cost.copy += copying.elapsed();
            let fetched = Instant::now();
            if let Some(extents) = self.extents.last() {
                let bytes = bytes.clone();
                extents.insert(key.clone(), CachedExtent { bytes, fetched }).await;
            }
            data.parts.push((extent, bytes));
        }
        Ok(data)
    }

    /// Updates the gauge. Housekeeping runs first, which also bounds moka's queue.
    async fn report_bytes(&self) {
        for extents in self.extents.iter().rev() {
            extents.run_pending_tasks().await;
        }
        let held: u64 = self.extents.iter().map(Extents::weighted_size).sum();
        let before = self.reported_bytes.swap(held, Ordering::Relaxed);
        self.metrics.bytes.add(held.cast_signed() - before.cast_signed());
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

#[cfg(test)]
mod tests;

/// Overhead of an entry in bytes: its key, its entry in the table and in the queues of the policy, reference counts,
/// and allocator overhead. Measured by `tests/cache_memory.rs`.
const ENTRY_BYTES: u64 = 480;

/// Allowed block sizes in bytes.
const BLOCK_LIMITS: Range<u64> = 512..(1 << 20) + 1;
/// Maximum time to live: the library rejects a thousand years.
const MAX_TTL_MS: u64 = 365 * 24 * 3600 * 1000;

/// Eviction policy of a full cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Evicts rarely used parts, so that a scan does not displace popular parts. A fifth of the cache holds the newest
    /// parts. A part that leaves it is kept only if it was requested more often than the part that it would replace.
    #[default]
    TinyLfu,
    /// Evicts the least recently used part.
    Lru,
}

/// Unit of caching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Blocks of `block_bytes`: neighbours of the requested bytes are cached too.
    #[default]
    Block,
    /// Exactly the requested ranges, such as rows: neighbours are not cached, and only an equal range is a hit.
    Range,
}

/// Cache settings: `[cache]` of the server's or of a tier's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Maximum memory in bytes, including about 500 bytes of bookkeeping per part; 0 disables the cache.
    pub capacity_bytes: u64,
    /// Bytes of a block: a power of two from 512 to 1 MiB.
    pub block_bytes: u64,
    /// Eviction policy of a full cache.
    pub policy: Policy,
    /// Age in milliseconds after which a part is read again (default: no limit). Even without it, a part is only used
    /// for its own version.
    pub ttl_ms: Option<u64>,
    /// Unit of caching.
    pub granularity: Granularity,
}

impl CacheConfig {
    /// Returns settings without a cache.
    pub const fn off() -> Self {
        Self {
            capacity_bytes: 0,
            block_bytes: 4096,
            policy: Policy::TinyLfu,
            ttl_ms: None,
            granularity: Granularity::Block,
        }
    }

    /// Maximum number of blocks that fit.
    pub const fn max_blocks(&self) -> u64 {
        self.capacity_bytes / (self.block_bytes + ENTRY_BYTES)
    }

    fn check(&self) -> Result<(), StorageError> {
        let refuse = |key, detail| Err(ErrorKind::Invalid.error(key, detail));
        let (capacity, block) = (self.capacity_bytes, self.block_bytes);
        if !BLOCK_LIMITS.contains(&block) || !block.is_power_of_two() {
            let detail = format!("must be a power of two from 512 to 1048576: {block}");
            return refuse("cache.block_bytes", detail);
        }
        if capacity < block + ENTRY_BYTES {
            let detail = format!(
                "must hold at least one block of {block} bytes and {ENTRY_BYTES} bytes of bookkeeping: {capacity}"
            );
            return refuse("cache.capacity_bytes", detail);
        }
        match self.ttl_ms {
            Some(ttl_ms) if ttl_ms == 0 || ttl_ms > MAX_TTL_MS => {
                let detail = format!("must be from 1 to {MAX_TTL_MS}: {ttl_ms}; omit it for no limit");
                refuse("cache.ttl_ms", detail)
            }
            _ => Ok(()),
        }
    }
}

impl Default for CacheConfig {
    /// 64 MiB in blocks of 4 KiB.
    fn default() -> Self {
        Self {
            capacity_bytes: 64 << 20,
            ..Self::off()
        }
    }
}
