//! A point: one combination of the factors. Plain data.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use tierlab_instrument::units::{bytes, count_of, parse_bytes};

/// Ways of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// The configured tier.
    #[default]
    Tier,
    /// The io_uring tier with `O_DIRECT`.
    Direct,
    /// The io_uring tier, buffered.
    Buffered,
    /// Buffered `pread`, with a thread for each call in flight.
    Pread,
    /// `pread` with `O_DIRECT`, with a thread for each call in flight.
    PreadDirect,
    /// Copies from a memory map, with a thread for each call in flight.
    Mmap,
}

impl Way {
    /// True for the bench's own code, outside the tiers.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::Pread | Self::PreadDirect | Self::Mmap)
    }

    /// True if it bypasses the page cache.
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::PreadDirect)
    }
}

/// Maximum blocks of the pattern `zipf`, each of which has a cumulative weight.
pub(crate) const MAX_ZIPF_BLOCKS: u64 = 1 << 24;

/// Patterns of the positions of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// One block after another, shared by the callers, from the start again at the end
    Sequential,
    /// Random positions, at multiples of the block
    #[default]
    Random,
    /// Every `stride`-th block, then the blocks after those, and so on.
    #[value(skip)]
    Strided,
    /// Zipf's law with the given exponent: some blocks are accessed far more often than others
    Zipf,
}

/// Kinds of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    #[default]
    Read,
    /// Writes: whole objects of one block through a tier, blocks in place by `pwrite`.
    Write,
    /// Reads and writes, of which `write_share` are writes.
    Mixed,
    /// Look-ups of random objects.
    Stat,
    /// Listings of all objects.
    List,
    /// Removals of all objects, one after another.
    Delete,
    /// Durable writes of large objects, one per caller.
    Checkpoint,
    /// Whole reads of checkpoints: each caller looks one up, reads it and computes its checksum.
    Restore,
}

impl Operation {
    /// True for calls on whole objects: `files` objects of `block` bytes.
    pub(crate) const fn takes_objects(self) -> bool {
        !matches!(self, Self::Read | Self::Write | Self::Mixed)
    }

    /// True if each caller makes one call, and the repeat lasts until the last call ends.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Restore)
    }

    /// True if calls read data, so that the state of the page cache matters.
    pub(crate) const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Mixed | Self::Restore)
    }

    /// True if calls write data, so that its durability matters.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Mixed | Self::Checkpoint)
    }

    /// True if calls move bytes of objects.
    pub(crate) const fn moves_bytes(self) -> bool {
        !matches!(self, Self::Stat | Self::List | Self::Delete)
    }
}

/// Time at which written data becomes durable. A plan chooses it for blocks written in place; a tier has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WriteSync {
    /// Never: data may stay in the page cache, or in the device's cache.
    #[default]
    None,
    /// After each write: blocks by `O_DSYNC`, a local tier's objects by `fsync` of the file and its folder.
    Each,
    /// After the last write, by `fsync`, which counts in the time of the repeat.
    End,
    /// After each object, by the NFS server's COMMIT.
    Commit,
    /// By the settings of a bucket or a server, which acknowledges each object.
    Acknowledged,
}

/// State of the page cache at the start of a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CacheState {
    /// No data: dropped by `posix_fadvise` before each repeat.
    #[default]
    Cold,
    /// All data that fits: read once before each repeat.
    Warm,
    /// Unused: `O_DIRECT`.
    Bypassed,
    /// Unknown: the tier is remote or in memory.
    AsIs,
}

/// A point, ordered as in reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) tier: String,
    pub(crate) operation: Operation,
    pub(crate) pattern: Pattern,
    /// Number of objects into which the data is split.
    pub(crate) files: u32,
    pub(crate) way: Way,
    pub(crate) cache: CacheState,
    #[serde(default)]
    pub(crate) sync: WriteSync,
    /// Threads of the runtime, 0 for one per core; peers use one thread per call in flight.
    pub(crate) threads: u16,
    /// Calls offered per second; 0 is a closed loop.
    pub(crate) rate: u32,
    pub(crate) block_bytes: u64,
    /// Calls in flight; in an open loop the maximum.
    pub(crate) depth: u32,
}

/// Name of a value in TOML.
pub(crate) fn toml_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

impl Point {
    /// A closed loop of random reads of one file through a tier, one in flight.
    pub(crate) fn reads(tier: &str, block_bytes: u64) -> Self {
        Self {
            tier: tier.to_owned(),
            files: 1,
            cache: CacheState::AsIs,
            block_bytes,
            depth: 1,
            ..Self::default()
        }
    }

    /// Pattern and operation, and the number of files if there are several.
    pub(crate) fn access_text(&self) -> String {
        let mut text = toml_name(&self.operation);
        if !self.operation.takes_objects() {
            text = format!("{} {text}", toml_name(&self.pattern));
        }
        match self.files {
            0 | 1 => text,
            files => format!("{text}, {files} files"),
        }
    }

    /// Number of objects; one per caller if each caller makes one call.
    pub(crate) fn objects(&self) -> u32 {
        match self.operation.is_once() {
            true => self.depth,
            false => self.files,
        }
    }

    /// True for writes of blocks in place, by the bench's own code.
    pub(crate) fn writes_in_place(&self) -> bool {
        self.way.is_peer() && self.operation != Operation::Read
    }

    /// True for accesses that end with the data, or a part of it: ordered accesses and random reads of cold data, whose pages are warm
    /// afterwards, and operations that use up their objects.
    pub(crate) fn ends_with_data(&self) -> bool {
        let is_cold = self.cache == CacheState::Cold;
        match self.pattern {
            Pattern::Sequential | Pattern::Strided => is_cold || self.operation.takes_objects(),
            Pattern::Random => is_cold && self.operation.reads(),
            Pattern::Zipf => false,
        }
    }

    /// State of the page cache, durability of writes and number of threads, if chosen: `, cold, 2 threads`.
    pub(crate) fn state_text(&self) -> String {
        let cache = match self.cache {
            CacheState::Cold => ", cold",
            CacheState::Warm => ", warm",
            CacheState::Bypassed | CacheState::AsIs => "",
        };
        let sync = match self.sync {
            _ if !self.operation.writes() => "",
            WriteSync::None => ", not synced",
            WriteSync::Each => ", each synced",
            WriteSync::End => ", synced at the end",
            WriteSync::Commit => ", each committed",
            WriteSync::Acknowledged => ", each acknowledged",
        };
        let threads = match self.threads {
            0 => String::new(),
            threads => format!(", {}", count_of(threads, "thread")),
        };
        format!("{cache}{sync}{threads}")
    }

    /// Bytes of the calls in flight.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.block_bytes.saturating_mul(self.depth.into())
    }

    /// Size of a block, exact, unlike the text of other sizes.
    pub(crate) fn block_text(&self) -> String {
        let exact = Some(bytes(self.block_bytes)).filter(|text| parse_bytes(text).ok() == Some(self.block_bytes));
        exact.unwrap_or_else(|| format!("{} B", self.block_bytes))
    }

    /// Everything except block and depth, in words: the same for all points of a table.
    pub(crate) fn group_text(&self) -> String {
        let (way, access, state) = (toml_name(&self.way), self.access_text(), self.state_text());
        let text = format!("{} by {way}: {access}{state}", self.tier);
        match self.rate {
            0 => text,
            rate => format!("{text}, {rate}/s offered"),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, depth {}", self.group_text(), self.block_text(), self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_different_sizes_have_different_texts() {
        let text = |block| Point::reads("disk", block).block_text();
        let texts = [1, 512, 1536, 4095, 4096, 4097, 1 << 20].map(text);
        assert_eq!(
            texts,
            ["1 B", "512 B", "1.50 KiB", "4095 B", "4 KiB", "4097 B", "1 MiB"]
        );
    }
}
