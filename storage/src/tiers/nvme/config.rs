//! Keys of an nvme tier's TOML. In: TOML through serde. Out: checked values. Opens nothing.

use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Local directories read through io_uring: one (`root`), or several with striped objects (`roots`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeConfig {
    /// The directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// The directories of a striped tier, each best on a device of its own; their order and number are part of the
    /// layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PathBuf>,
    /// Stripe size in bytes, for objects written from now on.
    #[serde(default = "default_stripe_bytes")]
    pub stripe_bytes: u64,
    /// Maximum reads in flight, per directory.
    #[serde(default = "default_queue_depth")]
    pub queue_depth: u32,
    /// If true, reads with `O_DIRECT`. Reads are buffered, and marked so, if the file system refuses (default: true).
    #[serde(default = "yes")]
    pub direct: bool,
    /// Maximum bytes per read; longer ranges become several reads that are in flight together.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u32,
    /// Memory registered with the kernel for reads to go into, in each directory's engine; 0 for none.
    #[serde(default = "default_registered_buffers_bytes")]
    pub registered_buffers_bytes: u64,
    /// Task that submits reads and takes their completions: `runtime` (the tasks that read) or `thread` (a thread of
    /// the tier).
    #[serde(default = "default_driver")]
    pub driver: Driver,
}

const fn default_stripe_bytes() -> u64 {
    1 << 20
}
const fn default_queue_depth() -> u32 {
    128
}
const fn yes() -> bool {
    true
}
fn default_chunk_bytes() -> u32 {
    Tuning::default().chunk_bytes
}
fn default_registered_buffers_bytes() -> u64 {
    Tuning::default().registered_buffers_bytes
}
fn default_driver() -> Driver {
    Tuning::default().driver
}

/// Task that runs the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The reading tasks, and one task of the runtime that opened the tier: the least delay. Readers on another runtime
    /// get their bytes as long as the opening runtime is running.
    Runtime,
    /// A thread of its own: independent of runtimes, two switches between threads for each read.
    Thread,
}

/// Settings chosen by measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Maximum bytes per read; longer ranges become several reads that are in flight together.
    pub chunk_bytes: u32,
    /// Bytes of memory to register with the kernel, and to read into first; 0 for none.
    pub registered_buffers_bytes: u64,
    /// Task that submits reads and takes their completions.
    pub driver: Driver,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            chunk_bytes: 256 << 10,
            registered_buffers_bytes: 4 << 20,
            driver: Driver::Runtime,
        }
    }
}

impl Tuning {
    /// Smallest chunk, and unit of chunk sizes: the largest alignment of a direct read.
    const CHUNK_UNIT: u32 = 64 << 10;
    /// Largest registered buffer that the kernel accepts: 1 GiB.
    const LARGEST_ARENA: u64 = 1 << 30;
    const LARGEST_CHUNK: u32 = 1 << 30;

    pub(super) fn check(&self) -> Result<(), StorageError> {
        let (unit, chunk, arena) = (Self::CHUNK_UNIT, self.chunk_bytes, self.registered_buffers_bytes);
        if chunk == 0 || !chunk.is_multiple_of(unit) || chunk > Self::LARGEST_CHUNK {
            let detail = format!(
                "must be a multiple of {unit}, at most {}, is {chunk}",
                Self::LARGEST_CHUNK
            );
            return Err(StorageError::new(ErrorKind::Invalid, "chunk_bytes", detail));
        }
        if arena > Self::LARGEST_ARENA {
            let detail = format!("must be at most {}, is {arena}", Self::LARGEST_ARENA);
            return Err(StorageError::new(
                ErrorKind::Invalid,
                "registered_buffers_bytes",
                detail,
            ));
        }
        Ok(())
    }
}
