//! Tier over local files, read through io_uring. In: object paths below a root folder. Out: bytes read straight into
//! aligned buffers. Knows nothing of wrappers.
//!
//! Reads are direct (`O_DIRECT`), widened to the device's alignment. If the file system refuses direct reads, reads are
//! buffered, and both [`TierInfo`](crate::tier::TierInfo) and each read's `via` report that. Nothing is copied on the
//! way to the caller.
//!
//! **Guarantee of a version.** A version is inode, size, modification and change time. The path is checked once more
//! after the last byte of a call. So all bytes of a call are of the version that was looked up, or the call answers
//! `Changed` or `NotFound`. One gap remains before Linux 6.13: a writer that overwrites a file in place twice within
//! one clock tick leaves both times unchanged. Files replaced by renaming, as by `put`, have no such gap. A file that
//! another program removes keeps its disk space while it is among the few open files.
//!
//! `tier` is a single folder, `striped` several. `files` holds open files, `store` lists and writes, `plan` chooses the
//! segments to read, and `engine` reads them: `worker` does the work, driven by a thread or by `runtime`, on a `ring`.
#![allow(unsafe_code)]

use crate::config::number;
use crate::error::{ErrorKind, StorageError};
use crate::tasks::blocking;
use crate::tier::Tier;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use striped::StripedTier;
pub use tier::{LocalOptions, NvmeTier};

mod buffer;
mod engine;
pub(crate) mod files;
mod job;
pub(crate) mod plan;
mod ring;
pub(crate) mod root;
mod runtime;
mod signals;
pub(crate) mod store;
mod striped;
mod tier;
mod worker;

/// Opens a config's tier: one folder, or several striped into one tier.
///
/// # Errors
/// Fails if neither or both of `root` and `roots` are given, or like [`NvmeTier::open_with`].
pub(crate) async fn open(config: &NvmeConfig) -> Result<Arc<dyn Tier>, StorageError> {
    let tuning = Tuning {
        chunk_bytes: config.chunk_bytes,
        registered_buffers_bytes: config.registered_buffers_bytes,
        driver: config.driver,
    };
    let options = |root: &Path| LocalOptions::new(root, config.queue_depth, config.direct);
    match (&config.root, &config.roots[..]) {
        (Some(root), []) => Ok(Arc::new(NvmeTier::open_tuned(options(root), tuning).await?)),
        (None, roots) if !roots.is_empty() => {
            let mut tiers = Vec::with_capacity(roots.len());
            for root in roots {
                tiers.push(NvmeTier::open_tuned(options(root), tuning).await?);
            }
            let stripe_bytes = config.stripe_bytes;
            let striped = blocking("roots", move || StripedTier::new(tiers, stripe_bytes)).await?;
            Ok(Arc::new(striped))
        }
        _ => {
            let detail = "set one of `root` (a folder) and `roots` (folders to stripe over)";
            Err(StorageError::new(ErrorKind::Invalid, "root", detail))
        }
    }
}

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
    #[serde(default = "number::<{ 1 << 20 }, _>")]
    pub stripe_bytes: u64,
    /// Maximum reads in flight, per directory.
    #[serde(default = "number::<128, _>")]
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

    fn check(&self) -> Result<(), StorageError> {
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
