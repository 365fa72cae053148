//! The `[cache]` table. In: TOML. Out: a checked configuration.

use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Overhead of an entry in bytes: the key, its place in the table and in the queues of the policy, reference counts,
/// and allocator overhead. Measured by `tests/cache_memory.rs`.
pub(super) const ENTRY_BYTES: u64 = 480;

/// The smallest and the largest block, in bytes.
const BLOCK_LIMITS: Range<u64> = 512..(1 << 20) + 1;
/// The longest time to live: the library refuses a thousand years.
const LONGEST_TTL_MS: u64 = 365 * 24 * 3600 * 1000;

/// Eviction policy of a full cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Evicts rarely used parts: a scan does not displace popular parts, and a new part is admitted only if it was
    /// requested more often than the part that it would replace.
    #[default]
    TinyLfu,
    /// Evicts the least recently used part.
    Lru,
}

/// Unit of caching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// Blocks of `block_bytes`: neighbours of the requested bytes are cached too.
    #[default]
    Block,
    /// Exactly the requested ranges, such as rows: neighbours are not cached, and only an equal range is a hit.
    Range,
}

/// Cache settings: `[cache]` of the server's configuration, or of a tier's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Maximum memory in bytes, including about 500 bytes of bookkeeping per part; 0 disables the cache.
    pub capacity_bytes: u64,
    /// Bytes of a block: a power of two from 512 to 1 MiB.
    pub block_bytes: u64,
    /// Eviction policy of a full cache.
    pub policy: Policy,
    /// Milliseconds after which a part is read again; never when left out. Without it a part still never outlives its
    /// version: another version has other keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Unit of caching.
    pub granularity: Granularity,
}

impl CacheConfig {
    /// No cache.
    #[must_use]
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
    #[must_use]
    pub const fn most_blocks(&self) -> u64 {
        self.capacity_bytes / (self.block_bytes + ENTRY_BYTES)
    }

    pub(super) fn check(&self) -> Result<(), StorageError> {
        let refuse = |key, detail| Err(StorageError::new(ErrorKind::Invalid, key, detail));
        let (capacity, block) = (self.capacity_bytes, self.block_bytes);
        if !BLOCK_LIMITS.contains(&block) || !block.is_power_of_two() {
            let detail = format!("must be a power of two from 512 to 1048576, is {block}");
            return refuse("cache.block_bytes", detail);
        }
        if capacity < block + ENTRY_BYTES {
            let detail = format!(
                "must hold at least one block of {block} bytes and {ENTRY_BYTES} bytes of bookkeeping, is {capacity}"
            );
            return refuse("cache.capacity_bytes", detail);
        }
        match self.ttl_ms {
            Some(ttl_ms) if ttl_ms == 0 || ttl_ms > LONGEST_TTL_MS => {
                let detail = format!("must be from 1 to {LONGEST_TTL_MS}, is {ttl_ms}; leave it out for no limit");
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
