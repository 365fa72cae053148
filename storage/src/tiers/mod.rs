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

/// Configuration of the tier over key-value stores, in builds without the feature `redis`.
#[cfg(not(feature = "redis"))]
pub mod redis {
    mod config;

    pub use config::RedisConfig;
}

/// Default of a key, for `#[serde(default = "number::<4, _>")]`.
pub(crate) fn number<const N: u32, T: From<u32>>() -> T {
    N.into()
}

/// Default of a key that is true.
pub(crate) const fn yes() -> bool {
    true
}
