//! Counters of a disk. In: a folder. Out: the counters of the device below it in `/proc/diskstats`.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use tierlab_instrument::machine::SECTOR_BYTES;

/// Device below a folder.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    major: u64,
    minor: u64,
}

/// Counters since the machine started, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskUse {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
}

impl Disk {
    /// Returns the disk below a folder; `None` if it lies on no device: in memory, on an overlay, on a network.
    pub(super) fn below(folder: &Path) -> Option<Self> {
        let device = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let disk = Self { major, minor };
        disk.counters().map(|_| disk)
    }

    pub(super) fn counters(&self) -> Option<DiskUse> {
        let all = procfs::diskstats().ok()?;
        let own = all
            .iter()
            .find(|disk| u64::try_from(disk.major) == Ok(self.major) && u64::try_from(disk.minor) == Ok(self.minor))?;
        Some(DiskUse {
            reads: own.reads,
            read_bytes: own.sectors_read * SECTOR_BYTES,
            writes: own.writes,
            write_bytes: own.sectors_written * SECTOR_BYTES,
        })
    }
}

impl DiskUse {
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
        }
    }
}
