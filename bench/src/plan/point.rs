//! A point: one combination of the factors. Plain data.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use tierlab_instrument::units::bytes;

/// Ways of getting bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// The tier as it is configured.
    #[default]
    Tier,
    /// The io_uring tier with `O_DIRECT`.
    Direct,
    /// The io_uring tier through the page cache.
    Buffered,
    /// `pread` through the page cache, a thread for each call in flight.
    Pread,
    /// `pread` with `O_DIRECT`, likewise.
    PreadDirect,
    /// Copies out of a memory map, likewise.
    Mmap,
}

impl Way {
    /// True for the bench's own code beside the tiers.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::Pread | Self::PreadDirect | Self::Mmap)
    }

    /// True if it bypasses the page cache.
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::PreadDirect)
    }
}

/// Patterns of the positions of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// One block after another, shared by the callers, from the start again at the end
    Sequential,
    /// Random positions, at multiples of the block
    #[default]
    Random,
    /// Every `stride`-th block, then those beside them.
    #[value(skip)]
    Strided,
    /// Some blocks far more often than others, by Zipf's law with the given exponent
    Zipf,
}

/// Kinds of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    #[default]
    Read,
    /// Writes: whole objects of a block through a tier, blocks in place by `pread`'s sister `pwrite`.
    Write,
    /// Both, `write_share` of them writes.
    Mixed,
    /// Look-ups of random objects.
    Stat,
    /// Listings of all objects.
    List,
    /// Removals of one object after another, until none is left.
    Delete,
    /// Durable writes of large objects: each caller writes one.
    Checkpoint,
    /// Whole reads of such objects: each caller looks one up, reads it and computes its checksum.
    Restore,
}

impl Operation {
    /// True for calls on whole objects, `files` of them with `block` bytes each.
    pub(crate) const fn takes_objects(self) -> bool {
        !matches!(self, Self::Read | Self::Write | Self::Mixed)
    }

    /// True if each caller makes one call, and the repeat lasts until the last of them has ended.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Restore)
    }

    /// True if its calls read data, so that the state of the page cache matters.
    pub(crate) const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Restore)
    }

    /// True if its calls move bytes of objects.
    pub(crate) const fn moves_bytes(self) -> bool {
        !matches!(self, Self::Stat | Self::List | Self::Delete)
    }
}

/// Time at which blocks written in place are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WriteSync {
    /// Never: in the page cache, or in the device's own.
    #[default]
    None,
    /// With each write, by `O_DSYNC`.
    Each,
    /// After the last write, by `fsync`, which counts in the time of the repeat.
    End,
}

/// State of the page cache at the start of a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CacheState {
    /// Nothing of the data: dropped by `posix_fadvise` before each repeat.
    #[default]
    Cold,
    /// The data, as far as it fits: read once before each repeat.
    Warm,
    /// Not used: `O_DIRECT`.
    Bypassed,
    /// Not known: the tier is remote or in memory.
    AsIs,
}

/// A point. Its order is that in which reports show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) tier: String,
    pub(crate) operation: Operation,
    pub(crate) pattern: Pattern,
    /// Objects that the data is cut into.
    pub(crate) files: u32,
    pub(crate) way: Way,
    pub(crate) cache: CacheState,
    #[serde(default)]
    pub(crate) sync: WriteSync,
    /// Threads of the runtime, 0 for one per core; the peers have one for each call in flight.
    pub(crate) threads: u16,
    /// Calls offered per second; 0 is a closed loop.
    pub(crate) rate: u32,
    pub(crate) block_bytes: u64,
    /// Calls in flight; in an open loop at most so many.
    pub(crate) depth: u32,
}

/// The word of a value as its TOML has it.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
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
        let mut text = word(&self.operation);
        if !self.operation.takes_objects() {
            text = format!("{} {text}", word(&self.pattern));
        }
        match self.files {
            0 | 1 => text,
            files => format!("{text}, {files} files"),
        }
    }

    /// Number of objects: one for each caller where each makes one call.
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

    /// True for accesses that end with the data: reads in order of cold data, whose pages are warm from then on, and
    /// operations for which an object is there once.
    pub(crate) fn ends_with_data(&self) -> bool {
        let in_order = matches!(self.pattern, Pattern::Sequential | Pattern::Strided);
        in_order && (self.cache == CacheState::Cold || self.operation.takes_objects())
    }

    /// True if calls before the window would change what is measured in it.
    pub(crate) fn skips_warmup(&self) -> bool {
        self.ends_with_data() || self.sync == WriteSync::End
    }

    /// State of the page cache, durability of writes and number of threads, as far as they are chosen: `, cold, 2 threads`.
    pub(crate) fn manner_text(&self) -> String {
        let cache = match self.cache {
            CacheState::Cold => ", cold",
            CacheState::Warm => ", warm",
            CacheState::Bypassed | CacheState::AsIs => "",
        };
        let sync = match self.sync {
            _ if !self.writes_in_place() => "",
            WriteSync::None => ", not synced",
            WriteSync::Each => ", each synced",
            WriteSync::End => ", synced at the end",
        };
        let threads = match self.threads {
            0 => String::new(),
            1 => ", 1 thread".to_owned(),
            threads => format!(", {threads} threads"),
        };
        format!("{cache}{sync}{threads}")
    }

    /// Everything but block and depth, in words: the same for all points of a table.
    pub(crate) fn family_text(&self) -> String {
        let (way, access, manner) = (word(&self.way), self.access_text(), self.manner_text());
        let text = format!("{} by {way}: {access}{manner}", self.tier);
        match self.rate {
            0 => text,
            rate => format!("{text}, {rate}/s offered"),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, block) = (self.family_text(), bytes(self.block_bytes));
        write!(f, "{family}, {block}, depth {}", self.depth)
    }
}
