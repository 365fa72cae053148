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

mod active;
mod buffer;
mod config;
mod engine;
pub(crate) mod files;
mod job;
mod op;
pub(crate) mod plan;
mod ring;
pub(crate) mod root;
mod runtime;
mod signals;
pub(crate) mod store;
mod striped;
mod tier;
mod worker;

pub use config::{Driver, NvmeConfig, Tuning};
pub use striped::StripedTier;
pub use tier::{LocalOptions, NvmeTier};

use crate::blocking::blocking;
use crate::error::{ErrorKind, StorageError};
use crate::tier::Tier;
use std::path::PathBuf;
use std::sync::Arc;

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
    let options = |root: &PathBuf| LocalOptions {
        root: root.clone(),
        kind: "nvme",
        notes: Vec::new(),
        queue_depth: config.queue_depth,
        direct: config.direct,
    };
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
