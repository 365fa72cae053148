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

/// Checks that no key of `object` is 0.
pub(crate) fn check_not_zero(object: &str, keys: &[(&str, u64)]) -> Result<(), StorageError> {
    match keys.iter().find(|(_, value)| *value == 0) {
        Some((key, _)) => Err(ErrorKind::Invalid.error(object, format!("`{key}` must be at least 1"))),
        None => Ok(()),
    }
}

/// Default value of a key that is true.
pub(crate) const fn yes() -> bool {
    true
}
