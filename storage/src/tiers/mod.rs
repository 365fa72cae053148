//! Tiers, one folder or file each: TOML keys, opening, reading.

pub mod flight;
pub mod gds;
pub mod memory;
pub mod nfs;
pub mod nvme;
pub mod object;
#[cfg(feature = "redis")]
pub mod redis;
mod source;

use crate::{ErrorKind, StorageError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Configuration of the key-value tier, in builds without the feature `redis`.
#[cfg(not(feature = "redis"))]
pub mod redis {
    mod config;

    pub use config::RedisConfig;
}

/// Default value of a key, for `#[serde(default = "number::<4, u32>")]`.
pub(crate) fn number<const N: u32, T: From<u32>>() -> T {
    N.into()
}

/// Maximum number of connections of a tier: memory for each is allocated at the start.
const MAX_CONNECTIONS: u64 = 4096;

/// Checks that no key of `object` is 0, and the maximum of `connections`.
pub(crate) fn check_not_zero(object: &str, keys: &[(&str, u64)]) -> Result<(), StorageError> {
    for (key, value) in keys {
        let detail = match value {
            0 => format!("`{key}` must be at least 1"),
            _ if *key == "connections" && *value > MAX_CONNECTIONS => {
                format!("`{key}` must be at most {MAX_CONNECTIONS}: {value}")
            }
            _ => continue,
        };
        return Err(ErrorKind::Invalid.error(object, detail));
    }
    Ok(())
}

/// Checks that a size is a multiple of `unit`, and at most `max`.
pub(crate) fn check_multiple(key: &str, value: u64, unit: u64, max: u64) -> Result<(), StorageError> {
    if value == 0 || !value.is_multiple_of(unit) || value > max {
        let detail = format!("must be a multiple of {unit}, at most {max}: {value}");
        return Err(ErrorKind::Invalid.error(key, detail));
    }
    Ok(())
}

/// Error of a read of a version that is no longer the object's.
pub(crate) fn changed(object: impl Display, was: impl Display, now: impl Display) -> StorageError {
    ErrorKind::Changed.error(object, format!("version was {was} at the look-up, is {now} now"))
}

/// Current time in nanoseconds since 1970, made later than every earlier result from `clock`: two writes within one tick of
/// a file system's clock still differ.
pub fn next_nanos(clock: &AtomicU64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or_default();
    let last = clock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
    now.max(last.unwrap_or_default() + 1)
}

/// Adds an entry to a cache of at most `max` entries. A full cache is cleared before.
pub fn remember<K: Eq + Hash, V>(cache: &Mutex<HashMap<K, V>>, max: usize, key: K, value: V) {
    let mut cache = cache.lock();
    if cache.len() >= max {
        cache.clear();
    }
    cache.insert(key, value);
}

/// Cuts a part out of a reply. Small parts are copied, so that they do not keep the whole reply in memory.
pub(crate) fn cut(reply: &Bytes, at: Range<usize>) -> Bytes {
    if at.len() * 2 < reply.len() {
        return Bytes::copy_from_slice(&reply[at]);
    }
    reply.slice(at)
}

/// Default value of a key that is true.
pub(crate) const fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_checked_before_anything_is_allocated() {
        let check = |key, value| check_not_zero("t", &[("part_bytes", 1), (key, value)]).map_err(|e| e.to_string());
        assert_eq!(check("connections", MAX_CONNECTIONS), Ok(()));
        assert_eq!(check("part_bytes", u64::MAX), Ok(()));
        assert!(check("connections", 0).unwrap_err().contains("at least 1"));
        let refused = check("connections", u32::MAX.into()).unwrap_err();
        assert!(refused.contains("at most 4096: 4294967295"), "{refused}");
    }
}
