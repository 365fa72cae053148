//! Blocks, and the fetches under way for those that are missing. In: block numbers. Out: blocks, fetched once.

use super::CacheMetrics;
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Object, ReadCost, Tier};
use bytes::Bytes;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tierlab_protocol::via::Via;
use tokio::sync::watch;

/// A version of an object, with its hash, which is computed once for all blocks of a call.
#[derive(Debug)]
pub(super) struct Version {
    path: ObjectPath,
    version: String,
    hash: u64,
}

impl Version {
    pub(super) fn of(object: &Object) -> Self {
        let mut hasher = DefaultHasher::new();
        (&object.path, &object.version).hash(&mut hasher);
        Self {
            path: object.path.clone(),
            version: object.version.clone(),
            hash: hasher.finish(),
        }
    }
}

/// What a block is kept under.
#[derive(Debug, Clone)]
struct BlockKey {
    of: Arc<Version>,
    block: u64,
}

impl PartialEq for BlockKey {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Version, b: &Version| a.hash == b.hash && a.version == b.version && a.path == b.path;
        self.block == other.block && (Arc::ptr_eq(&self.of, &other.of) || same(&self.of, &other.of))
    }
}

impl Eq for BlockKey {}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.of.hash);
        state.write_u64(self.block);
    }
}

/// What a fetch brought.
#[derive(Debug, Default)]
pub(super) struct Landed {
    pub(super) blocks: HashMap<u64, Bytes>,
    cost: ReadCost,
}

impl Landed {
    /// The cost of those who waited for `waited`: requests and bytes belong to the one whose call began the fetch.
    pub(super) fn cost_of(&self, led: bool, waited: Duration) -> ReadCost {
        if led {
            self.cost
        } else {
            ReadCost {
                via: self.cost.via,
                device: waited,
                ..ReadCost::default()
            }
        }
    }
}

type Outcome = Option<Result<Arc<Landed>, StorageError>>;

/// A fetch under way, as one call sees it.
#[derive(Debug)]
pub(super) struct Ticket {
    outcome: watch::Receiver<Outcome>,
    led: bool,
}

impl Ticket {
    /// Whether this call began the fetch.
    pub(super) const fn is_led(&self) -> bool {
        self.led
    }

    /// Waits for the fetch.
    pub(super) async fn landed(&self, object: &Object) -> Result<Arc<Landed>, StorageError> {
        let mut outcome = self.outcome.clone();
        let arrived = outcome
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|outcome| outcome.clone());
        arrived.unwrap_or_else(|| {
            let detail = "the fetch of a block ended without an answer";
            Err(StorageError::new(ErrorKind::Unavailable, object.path.as_str(), detail))
        })
    }
}

/// The fetches that will bring all blocks of a call.
pub(super) struct Boarded {
    pub(super) flights: Vec<Ticket>,
    /// Blocks whose fetch was already under way.
    pub(super) joined: u64,
}

/// The blocks and the fetches of a cache.
pub(super) struct Flights {
    inner: Arc<dyn Tier>,
    blocks: moka::future::Cache<BlockKey, Bytes>,
    under_way: Mutex<HashMap<BlockKey, watch::Receiver<Outcome>>>,
    block_bytes: u64,
    capacity_bytes: u64,
    metrics: CacheMetrics,
    /// What the gauge of held bytes has been told: several caches may share one gauge.
    told_bytes: AtomicU64,
}

impl Flights {
    pub(super) fn new(inner: Arc<dyn Tier>, capacity_bytes: u64, block_bytes: u64, metrics: CacheMetrics) -> Self {
        let weight = |_: &BlockKey, block: &Bytes| u32::try_from(block.len()).unwrap_or(u32::MAX);
        let blocks = moka::future::Cache::builder()
            .max_capacity(capacity_bytes)
            .weigher(weight)
            .build();
        metrics.capacity_bytes.add(capacity_bytes.cast_signed());
        let under_way = Mutex::default();
        Self {
            inner,
            blocks,
            under_way,
            block_bytes,
            capacity_bytes,
            metrics,
            told_bytes: AtomicU64::new(0),
        }
    }

    pub(super) const fn inner(&self) -> &Arc<dyn Tier> {
        &self.inner
    }

    /// The block, if it is held.
    pub(super) async fn get(&self, version: &Arc<Version>, block: u64) -> Option<Bytes> {
        self.blocks
            .get(&BlockKey {
                of: version.clone(),
                block,
            })
            .await
    }

    /// Counts a call's look-ups.
    pub(super) fn record(&self, cost: &ReadCost, joined: u64) {
        self.metrics.hits.inc_by(u64::from(cost.cache_hits));
        self.metrics.misses.inc_by(u64::from(cost.cache_misses));
        self.metrics.joined.inc_by(joined);
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<BlockKey, watch::Receiver<Outcome>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the fetches under way for `missing` blocks (ascending), and begins one for all the others.
    pub(super) fn board(self: &Arc<Self>, object: &Object, version: &Arc<Version>, missing: &[u64]) -> Boarded {
        let (sender, receiver) = watch::channel(None);
        let mut flights: Vec<Ticket> = Vec::new();
        let mut led = Vec::new();
        let mut joined = 0;
        let mut under_way = self.under_way();
        for &block in missing {
            let key = BlockKey {
                of: version.clone(),
                block,
            };
            if let Some(outcome) = under_way.get(&key) {
                joined += 1;
                if !flights.iter().any(|ticket| ticket.outcome.same_channel(outcome)) {
                    flights.push(Ticket {
                        outcome: outcome.clone(),
                        led: false,
                    });
                }
            } else {
                led.push(key);
            }
        }
        if !led.is_empty() {
            under_way.extend(led.iter().map(|key| (key.clone(), receiver.clone())));
        }
        drop(under_way);
        if !led.is_empty() {
            flights.push(Ticket {
                outcome: receiver,
                led: true,
            });
            let fetch = Fetch {
                flights: self.clone(),
                object: object.clone(),
                keys: led,
                sender,
            };
            tokio::spawn(fetch.run());
        }
        Boarded { flights, joined }
    }

    /// The bytes of a run of adjacent blocks.
    fn extent(&self, object: &Object, run: &Range<u64>) -> Range<u64> {
        run.start * self.block_bytes..(run.end * self.block_bytes).min(object.size)
    }

    /// Brings the gauge up to date. Housekeeping first, which also bounds what moka still has queued.
    async fn tell_bytes(&self) {
        self.blocks.run_pending_tasks().await;
        let held = self.blocks.weighted_size();
        let told = self.told_bytes.swap(held, Ordering::Relaxed);
        self.metrics.bytes.add(held.cast_signed() - told.cast_signed());
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        self.metrics
            .bytes
            .sub(self.told_bytes.load(Ordering::Relaxed).cast_signed());
        self.metrics.capacity_bytes.sub(self.capacity_bytes.cast_signed());
    }
}

/// One fetch, on a task of its own.
struct Fetch {
    flights: Arc<Flights>,
    object: Object,
    /// Ascending.
    keys: Vec<BlockKey>,
    sender: watch::Sender<Outcome>,
}

impl Fetch {
    async fn run(mut self) {
        let outcome = self.fetch().await;
        // The blocks are in the cache by now, so whoever comes after this finds them there.
        self.leave();
        self.sender.send_replace(Some(outcome.map(Arc::new)));
        self.flights.tell_bytes().await;
    }

    /// Nobody can join it any more. Only the first call does anything: the same blocks may be under way again.
    fn leave(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let mut under_way = self.flights.under_way();
        for key in &keys {
            under_way.remove(key);
        }
    }

    async fn fetch(&self) -> Result<Landed, StorageError> {
        let mut landed = Landed::default();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for key in &self.keys {
            // Between the look-up and the boarding, another fetch may have landed.
            if let Some(bytes) = self.flights.blocks.get(key).await {
                landed.blocks.insert(key.block, bytes);
                landed.cost.via.insert(Via::Memory);
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == key.block => run.end += 1,
                _ => runs.push(key.block..key.block + 1),
            }
        }
        if runs.is_empty() {
            return Ok(landed);
        }
        let extents: Vec<_> = runs.iter().map(|run| self.flights.extent(&self.object, run)).collect();
        let read = self.flights.inner.read_many(&self.object, &extents).await?;
        landed.cost.merge(&read.cost);
        let copying = Instant::now();
        for (run, bytes) in runs.into_iter().zip(&read.parts) {
            for (block, bytes) in run.zip(bytes.chunks(self.flights.block_bytes as usize)) {
                // A copy of its own: a slice would keep the whole read in memory for as long as one block of it lives.
                landed.blocks.insert(block, Bytes::copy_from_slice(bytes));
            }
        }
        landed.cost.copy += copying.elapsed();
        for key in &self.keys {
            if let Some(bytes) = landed.blocks.get(&key.block) {
                self.flights.blocks.insert(key.clone(), bytes.clone()).await;
            }
        }
        Ok(landed)
    }
}

impl Drop for Fetch {
    /// When the runtime ends or the tier panics, nobody may wait for this fetch any more.
    fn drop(&mut self) {
        self.leave();
    }
}
