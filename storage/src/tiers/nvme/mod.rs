//! Tier over local files, read through io_uring. In: object paths below a root folder. Out: bytes read straight into
//! aligned buffers. Knows nothing of wrappers.
//!
//! Reads are direct (`O_DIRECT`), widened to the device's alignment. If the file system refuses direct reads, they are
//! buffered, which [`TierInfo`](crate::tier::TierInfo) and each read's `via` report. Nothing is copied on the way to
//! the caller.
//!
//! **Guarantee of a version.** A version is inode, size, modification and change time. The path is checked once more
//! after the last byte of a call. So all bytes of a call are of the looked-up version, or the call returns `Changed` or
//! `NotFound`. One gap remains before Linux 6.13: a writer that overwrites a file in place twice within one clock tick
//! leaves both times unchanged. Files replaced by renaming, as by `put`, have no such gap. A file removed by another
//! program keeps its disk space while it is among the few open files.
//!
//! Small reads from the page cache check the open file each time, but its path only every few milliseconds. So after
//! the swap of a link or folder in its path, they return the looked-up version that much longer. Files read often are
//! leased, so that the kernel makes a writer wait: then no check is needed, and a replaced file is noticed within a
//! millisecond.
//!
//! `tier` is a single folder, `striped` several. `files` holds open files and `lease` their leases, `store` lists and
//! writes, `plan` chooses the segments to read, and `engine` reads them: `worker` does the work on a `ring`, driven by
//! a thread or by its callers.
#![allow(unsafe_code)]

use crate::tasks::blocking;
use crate::tiers::{check_multiple, number, yes};
use crate::{ErrorKind, StorageError, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use striped::StripedTier;
pub use tier::NvmeTier;

mod buffer;
mod engine;
pub(crate) mod files;
mod lease;
pub(crate) mod plan;
mod ring;
pub(crate) mod root;
mod signals;
pub(crate) mod store;
mod striped;
mod tier;
mod worker;

/// Default of `chunk_bytes`. With 256 KiB, the kernel's read-ahead fetches a third more than buffered random reads of
/// 1 MiB ask for.
const CHUNK_BYTES: u32 = 512 << 10;
/// Default of `registered_buffers_bytes`.
const REGISTERED_BUFFERS_BYTES: u32 = 4 << 20;
/// Smallest chunk, and unit of chunk sizes: the largest alignment of a direct read.
const CHUNK_UNIT: u64 = 64 << 10;
const LARGEST_CHUNK: u64 = 1 << 30;
/// Largest registered buffer that the kernel accepts: 1 GiB.
const LARGEST_ARENA: u64 = 1 << 30;

/// Sets up a ring and closes it. A seccomp filter may refuse what the kernel's own setting allows.
///
/// # Errors
/// Returns the kernel's error.
pub fn try_ring() -> std::io::Result<()> {
    io_uring::IoUring::new(2).map(drop)
}

/// Opens a config's tier: one folder, or several striped into one tier.
///
/// # Errors
/// Fails if neither or both of `root` and `roots` are given, or like [`NvmeTier::open_with`].
pub(crate) async fn open(config: &NvmeConfig) -> Result<Arc<dyn Tier>, StorageError> {
    let options = |root: &Path| LocalOptions {
        chunk_bytes: config.chunk_bytes,
        registered_buffers_bytes: config.registered_buffers_bytes,
        driver: config.driver,
        ..LocalOptions::new(root, config.queue_depth, config.direct)
    };
    match (&config.root, &config.roots[..]) {
        (Some(root), []) => Ok(Arc::new(NvmeTier::open_with(options(root)).await?)),
        (None, roots) if !roots.is_empty() => {
            let mut tiers = Vec::with_capacity(roots.len());
            for root in roots {
                tiers.push(NvmeTier::open_with(options(root)).await?);
            }
            let stripe_bytes = config.stripe_bytes;
            let striped = blocking("roots", move || StripedTier::new(tiers, stripe_bytes)).await?;
            Ok(Arc::new(striped))
        }
        _ => {
            let detail = "set exactly one of `root` (a folder) and `roots` (folders to stripe over)";
            Err(ErrorKind::Invalid.error("root", detail))
        }
    }
}

/// Local directories read through io_uring: one (`root`), or several with striped objects (`roots`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvmeConfig {
    /// Directory of the files.
    pub root: Option<PathBuf>,
    /// Directories of a striped tier, preferably each on its own device. Their order and number are part of the layout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<PathBuf>,
    /// Stripe size in bytes; applies to newly written objects.
    #[serde(default = "number::<{ 1 << 20 }, u64>")]
    pub stripe_bytes: u64,
    /// Maximum reads in flight, per directory.
    #[serde(default = "number::<128, u32>")]
    pub queue_depth: u32,
    /// If true, reads with `O_DIRECT` (default: true). If the file system refuses, reads are buffered and reported as
    /// such.
    #[serde(default = "yes")]
    pub direct: bool,
    /// Maximum bytes per read; longer ranges become several concurrent reads.
    #[serde(default = "number::<CHUNK_BYTES, u32>")]
    pub chunk_bytes: u32,
    /// Bytes of read buffers registered with the kernel, per directory; 0 disables registration.
    #[serde(default = "number::<REGISTERED_BUFFERS_BYTES, u64>")]
    pub registered_buffers_bytes: u64,
    /// Task that submits reads and takes their completions: `runtime` (the reading tasks) or `thread` (a thread of the
    /// tier).
    #[serde(default)]
    pub driver: Driver,
}

/// Task that runs the engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The reading tasks, and one task of the runtime that opened the tier: lowest latency. Readers on another runtime
    /// are served as long as the opening runtime runs.
    #[default]
    Runtime,
    /// A separate thread: independent of runtimes, two thread switches per read.
    Thread,
}

/// Options for opening a folder as a tier. The defaults were chosen by measurement.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The folder.
    pub root: PathBuf,
    /// Kind reported in [`TierInfo`](crate::tier::TierInfo), and suffix of the thread's name: `nvme`, or `nfs` for a
    /// kernel mount.
    pub kind: &'static str,
    /// Notes reported in [`TierInfo`](crate::tier::TierInfo), such as mount options.
    pub notes: Vec<String>,
    /// Maximum reads in flight.
    pub queue_depth: u32,
    /// If true, reads with `O_DIRECT` if possible.
    pub direct: bool,
    /// Maximum bytes per read; longer ranges become several concurrent reads.
    pub chunk_bytes: u32,
    /// Bytes of read buffers registered with the kernel; 0 disables registration.
    pub registered_buffers_bytes: u64,
    /// Task that submits reads and takes their completions.
    pub driver: Driver,
}

impl LocalOptions {
    /// Creates options of kind `nvme`, without notes, read by the runtime's tasks.
    pub fn new(root: &Path, queue_depth: u32, direct: bool) -> Self {
        Self {
            root: root.to_owned(),
            kind: "nvme",
            notes: Vec::new(),
            queue_depth,
            direct,
            chunk_bytes: CHUNK_BYTES,
            registered_buffers_bytes: REGISTERED_BUFFERS_BYTES.into(),
            driver: Driver::Runtime,
        }
    }

    /// Creates options of a folder read by its own thread, because the storage may be slow to accept reads.
    pub fn on_thread(root: &Path, queue_depth: u32, direct: bool) -> Self {
        Self {
            driver: Driver::Thread,
            ..Self::new(root, queue_depth, direct)
        }
    }

    fn check(&self) -> Result<(), StorageError> {
        check_multiple("chunk_bytes", self.chunk_bytes.into(), CHUNK_UNIT, LARGEST_CHUNK)?;
        let arena = self.registered_buffers_bytes;
        if arena > LARGEST_ARENA {
            let detail = format!("must be at most {LARGEST_ARENA}: {arena}");
            return Err(ErrorKind::Invalid.error("registered_buffers_bytes", detail));
        }
        Ok(())
    }
}
