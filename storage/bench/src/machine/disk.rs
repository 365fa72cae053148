//! A disk's own counters. In: a folder. Out: what `/proc/diskstats` counts of the device below it.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes of a sector in `/proc/diskstats`, whatever the device's are (Linux, Documentation/admin-guide/iostats.rst).
const SECTOR: u64 = 512;

/// The device below a folder.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    major: u64,
    minor: u64,
}

/// Counters since the machine started, or between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskUse {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
}

impl Disk {
    /// None where the folder lies on no device: in memory, on an overlay, on a network.
    pub(super) fn below(folder: &Path) -> Option<Self> {
        let device = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let disk = Self { major, minor };
        disk.counters().map(|_| disk)
    }

    pub(super) fn counters(&self) -> Option<DiskUse> {
        self.of(&std::fs::read_to_string("/proc/diskstats").ok()?)
    }

    /// Major, minor, name, then reads, merged, sectors read, time, writes, merged, sectors written.
    fn of(&self, text: &str) -> Option<DiskUse> {
        let number = |words: &[&str], at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let words = lines
            .into_iter()
            .find(|words| number(words, 0) == Some(self.major) && number(words, 1) == Some(self.minor))?;
        Some(DiskUse {
            reads: number(&words, 3)?,
            read_bytes: number(&words, 5)? * SECTOR,
            writes: number(&words, 7)?,
            write_bytes: number(&words, 9)? * SECTOR,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_device_is_read() {
        let text =
            "   7       0 loop0 1 0 2 0 0 0 0 0 0 0 0\n 253       0 vda 100 5 2000 30 40 6 800 70 0 80 90 0 0 0 0\n";
        let disk = Disk { major: 253, minor: 0 };
        let want = DiskUse {
            reads: 100,
            read_bytes: 2000 * 512,
            writes: 40,
            write_bytes: 800 * 512,
        };
        assert_eq!(disk.of(text), Some(want));
        assert_eq!(Disk { major: 8, minor: 0 }.of(text), None);
        assert_eq!(Disk { major: 253, minor: 0 }.of("253 0 vda x"), None);
    }
}
