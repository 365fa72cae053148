//! Options of the engine. In: a tier's config. Out: options within their bounds, or an error that names the key.

use super::config::GdsConfig;
use crate::error::{ErrorKind, StorageError};
use std::ops::RangeInclusive;
use tierlab_gds::routes::RouteOptions;

/// Unit of piece sizes, in bytes: the largest alignment of a direct read.
const CHUNK_UNIT: u32 = 64 << 10;
const LARGEST_CHUNK: u32 = 64 << 20;
const PINNED_BUFFERS: RangeInclusive<u32> = 2..=256;
const THREADS: RangeInclusive<u32> = 1..=64;

/// Options of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EngineOptions {
    pub(super) route: RouteOptions,
    /// Maximum device memory for reads.
    pub(super) device_memory_bytes: usize,
}

impl EngineOptions {
    /// The checked options of a config.
    pub(super) fn of(config: &GdsConfig) -> Result<Self, StorageError> {
        let invalid = |key: &str, what: String| StorageError::new(ErrorKind::Invalid, key, what);
        let chunk = config.chunk_bytes;
        if chunk == 0 || !chunk.is_multiple_of(CHUNK_UNIT) || chunk > LARGEST_CHUNK {
            let what = format!("must be a multiple of {CHUNK_UNIT}, at most {LARGEST_CHUNK}, is {chunk}");
            return Err(invalid("chunk_bytes", what));
        }
        for (key, value, allowed) in [
            ("pinned_buffers", config.pinned_buffers, PINNED_BUFFERS),
            ("threads", config.threads, THREADS),
        ] {
            if !allowed.contains(&value) {
                let what = format!("must be from {} to {}, is {value}", allowed.start(), allowed.end());
                return Err(invalid(key, what));
            }
        }
        let whole = |_| {
            invalid(
                "device_memory_bytes",
                "is more than this machine can address".to_owned(),
            )
        };
        Ok(Self {
            route: RouteOptions {
                path: config.path,
                chunk_bytes: chunk as usize,
                pinned_buffers: config.pinned_buffers as usize,
                threads: config.threads as usize,
            },
            device_memory_bytes: usize::try_from(config.device_memory_bytes).map_err(whole)?,
        })
    }
}
