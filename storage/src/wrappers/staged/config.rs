//! The `[staged]` table, and a stage's counts. In: TOML. Out: a checked configuration. Knows nothing of files.

use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;

/// The smallest and the largest block, in bytes.
const BLOCK_LIMITS: Range<u64> = (64 << 10)..(64 << 20) + 1;

/// Staging folder and limits: `[staged]` of a tier's TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedConfig {
    /// Local folder, created if missing. Only one tier of one process at a time may use it, unless it is `shared`. A
    /// folder that cannot be created, written or locked is an error at the start; a later failure costs only the
    /// staging.
    pub root: PathBuf,
    /// If true, other processes of this machine stage in the same `root`. Each process writes its own part and reads
    /// the parts of the others. A block that one process fetches is not fetched by another meanwhile: one download for
    /// the whole machine.
    #[serde(default)]
    pub shared: bool,
    /// Maximum bytes on disk, per process if shared; the least recently used blocks are evicted first.
    #[serde(default = "default_capacity_bytes")]
    pub capacity_bytes: u64,
    /// Block size in bytes, the unit of reads from the tier: a power of two from 64 KiB to 64 MiB.
    #[serde(default = "default_block_bytes")]
    pub block_bytes: u64,
    /// Maximum reads of the folder in flight.
    #[serde(default = "default_queue_depth")]
    pub queue_depth: u32,
    /// If true, reads the folder with `O_DIRECT`. Reads are buffered, and marked so, if the file system refuses.
    #[serde(default = "yes")]
    pub direct: bool,
}

const fn default_capacity_bytes() -> u64 {
    8 << 30
}
const fn default_block_bytes() -> u64 {
    1 << 20
}
const fn default_queue_depth() -> u32 {
    128
}
const fn yes() -> bool {
    true
}

impl StagedConfig {
    pub(super) fn check(&self) -> Result<(), StorageError> {
        let refuse = |key, detail| Err(StorageError::new(ErrorKind::Invalid, key, detail));
        let (capacity, block) = (self.capacity_bytes, self.block_bytes);
        if !BLOCK_LIMITS.contains(&block) || !block.is_power_of_two() {
            let detail = format!("must be a power of two from 65536 to 67108864, is {block}");
            return refuse("staged.block_bytes", detail);
        }
        if capacity < 2 * block {
            let detail = format!("must hold at least two blocks of {block} bytes, is {capacity}");
            return refuse("staged.capacity_bytes", detail);
        }
        Ok(())
    }
}

/// Counts of a stage since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedCounts {
    /// Blocks read from the folder.
    pub hits: u64,
    /// Blocks that the folder did not have, broken blocks included: they came from the tier, or another process.
    pub misses: u64,
    /// Misses among them that another process had staged.
    pub neighbours: u64,
    /// Blocks written.
    pub staged: u64,
    /// Blocks that had to go for others.
    pub evicted: u64,
    /// Blocks that did not fit their checksum, or could not be read, and were read from the tier again.
    pub broken: u64,
    /// Blocks not written because too many were waiting, or shortly after a failure.
    pub skipped: u64,
    /// Writes that failed.
    pub failures: u64,
    /// The last of these.
    pub last_failure: Option<String>,
    /// Bytes on disk now.
    pub bytes: u64,
}
