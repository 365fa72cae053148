//! Blocks of objects kept in memory. In: reads. Out: the same bytes, those of known blocks without asking the tier.
//!
//! - Keyed by path, version and block: an object that changes gets new keys, so a hit is always of the version asked
//!   for. What the cache holds of a version stays readable after the object has changed.
//! - All blocks that a call misses go to the tier as one `read_many`, adjacent blocks joined.
//! - A block is fetched once, however many ask for it at the same time. The fetch runs on its own: it goes on when the
//!   call that began it is dropped. Its error reaches everyone who waits, and is not kept.
//! - A range of more than [`BYPASS_BLOCKS`] blocks is read around the cache: a model file would only push rows out.

mod flight;

use super::metered::CacheMetrics;
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, Read, ReadCost, ReadMany, Tier, TierInfo, check_ranges};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use flight::{Flights, Version};
use futures::future::try_join;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::via::Via;

/// A range that touches more blocks than this is read around the cache.
pub const BYPASS_BLOCKS: u64 = 64;
/// The smallest and the largest block, in bytes.
const BLOCK_LIMITS: Range<u64> = 512..(1 << 20) + 1;

/// How large a cache is: `[cache]` of the server's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Bytes of blocks held at most, not counting about 200 bytes of bookkeeping for each block; 0 is no cache.
    pub capacity_bytes: u64,
    /// Bytes of a block: a power of two from 512 to 1 MiB.
    pub block_bytes: u64,
}

impl CacheConfig {
    /// No cache.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            capacity_bytes: 0,
            block_bytes: 4096,
        }
    }
}

impl Default for CacheConfig {
    /// 64 MiB in blocks of 4 KiB.
    fn default() -> Self {
        Self {
            capacity_bytes: 64 << 20,
            block_bytes: 4096,
        }
    }
}

/// A tier behind a cache.
pub struct Cache {
    flights: Arc<Flights>,
    block_bytes: u64,
    capacity_bytes: u64,
}

/// The blocks of one call, as far as they are there.
#[derive(Default)]
struct Gathered {
    blocks: HashMap<u64, Bytes>,
    cost: ReadCost,
}

impl Cache {
    /// Wraps a tier.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the key.
    pub fn new(inner: Arc<dyn Tier>, config: &CacheConfig, metrics: CacheMetrics) -> Result<Self, StorageError> {
        let CacheConfig {
            capacity_bytes,
            block_bytes,
        } = *config;
        if !BLOCK_LIMITS.contains(&block_bytes) || !block_bytes.is_power_of_two() {
            let detail = format!("must be a power of two from 512 to 1048576, is {block_bytes}");
            return Err(StorageError::new(ErrorKind::Invalid, "cache.block_bytes", detail));
        }
        if capacity_bytes < block_bytes {
            let detail = format!("must hold at least one block of {block_bytes} bytes, is {capacity_bytes}");
            return Err(StorageError::new(ErrorKind::Invalid, "cache.capacity_bytes", detail));
        }
        let flights = Arc::new(Flights::new(inner, capacity_bytes, block_bytes, metrics));
        Ok(Self {
            flights,
            block_bytes,
            capacity_bytes,
        })
    }

    /// The blocks that a range touches.
    fn blocks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block_bytes..range.end.div_ceil(self.block_bytes)
    }

    fn bypasses(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks_of(range);
        !range.is_empty() && blocks.end - blocks.start > BYPASS_BLOCKS
    }

    /// The blocks that the ranges need, from the cache and from the tier, and the time spent waiting for the tier.
    async fn gather(&self, object: &Object, needed: &[u64]) -> Result<(Gathered, Duration), StorageError> {
        let version = Arc::new(Version::of(object));
        let mut gathered = Gathered::default();
        let mut missing = Vec::new();
        for &block in needed {
            match self.flights.get(&version, block).await {
                Some(bytes) => {
                    gathered.blocks.insert(block, bytes);
                }
                None => missing.push(block),
            }
        }
        gathered.cost.cache_hits = count(needed.len() - missing.len());
        gathered.cost.cache_misses = count(missing.len());
        if gathered.cost.cache_hits > 0 {
            gathered.cost.via.insert(Via::Memory);
        }
        if missing.is_empty() {
            self.flights.record(&gathered.cost, 0);
            return Ok((gathered, Duration::ZERO));
        }
        let boarded = self.flights.board(object, &version, &missing);
        self.flights.record(&gathered.cost, boarded.joined);
        let waiting = Instant::now();
        for flight in &boarded.flights {
            let landed = flight.landed(object).await?;
            gathered.cost.merge(&landed.cost_of(flight.is_led(), waiting.elapsed()));
            for &block in &missing {
                if let Some(bytes) = landed.blocks.get(&block) {
                    gathered.blocks.insert(block, bytes.clone());
                }
            }
        }
        Ok((gathered, waiting.elapsed()))
    }

    /// One range out of its blocks: a slice where one block has it all, else a copy.
    fn cut(&self, object: &Object, range: &Range<u64>, blocks: &HashMap<u64, Bytes>) -> Result<Bytes, StorageError> {
        let lost = || StorageError::new(ErrorKind::Corrupt, object.path.as_str(), "a block came back too short");
        let piece = |block: u64| {
            let start = block * self.block_bytes;
            let from = range.start.max(start) - start;
            let to = range.end.min(start + self.block_bytes) - start;
            let bytes = blocks.get(&block).ok_or_else(lost)?;
            if to > bytes.len() as u64 {
                Err(lost())
            } else {
                Ok(bytes.slice(from as usize..to as usize))
            }
        };
        let touched = self.blocks_of(range);
        match touched.end - touched.start {
            _ if range.is_empty() => Ok(Bytes::new()),
            1 => piece(touched.start),
            _ => {
                let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
                for block in touched {
                    whole.extend_from_slice(&piece(block)?);
                }
                Ok(whole.freeze())
            }
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[async_trait]
impl Tier for Cache {
    fn info(&self) -> TierInfo {
        let mut info = self.flights.inner().info();
        info.wrappers.insert(
            0,
            format!("cache({} bytes, blocks of {})", self.capacity_bytes, self.block_bytes),
        );
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.flights.inner().stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        // A read around the cache keeps the tier's own way of reading one large range.
        if self.bypasses(&range) {
            return self.flights.inner().read(object, range).await;
        }
        let ReadMany { mut parts, cost } = self.read_many(object, &[range]).await?;
        Ok(Read {
            bytes: parts.pop().unwrap_or_default(),
            cost,
        })
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let started = Instant::now();
        let around: Vec<_> = ranges.iter().filter(|range| self.bypasses(range)).cloned().collect();
        let through = ranges.iter().filter(|range| !range.is_empty() && !self.bypasses(range));
        let mut needed: Vec<u64> = through.flat_map(|range| self.blocks_of(range)).collect();
        needed.sort_unstable();
        needed.dedup();
        let read_around = async {
            if around.is_empty() {
                return Ok((ReadMany::default(), Duration::ZERO));
            }
            let begun = Instant::now();
            let read = self.flights.inner().read_many(object, &around).await?;
            Ok((read, begun.elapsed()))
        };
        let ((gathered, waited), (around, waited_around)) = try_join(self.gather(object, &needed), read_around).await?;
        let mut cost = gathered.cost;
        cost.merge(&around.cost);
        let mut around = around.parts.into_iter();
        let parts = ranges.iter().map(|range| match self.bypasses(range) {
            true => Ok(around.next().unwrap_or_default()),
            false => self.cut(object, range, &gathered.blocks),
        });
        let parts = parts.collect::<Result<_, _>>()?;
        cost.cache = started.elapsed().saturating_sub(waited.max(waited_around));
        Ok(ReadMany { parts, cost })
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.flights.inner().list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.flights.inner().put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.flights.inner().delete(path).await
    }
}

#[cfg(test)]
mod tests;
