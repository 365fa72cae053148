//! Traffic of the storage below a folder. In: a folder. Out: the counters of the device in `/proc/diskstats`, and of the NFS mount in
//! `/proc/self/mountstats`.

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

/// Traffic of a disk or a mount since it began, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Traffic {
    /// Completed reads; of NFS, READ calls.
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    /// Completed writes; of NFS, WRITE calls.
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    /// Retransmitted calls of NFS.
    pub(crate) retransmits: u64,
}

impl Traffic {
    pub(super) fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            reads: each(self.reads, other.reads),
            read_bytes: each(self.read_bytes, other.read_bytes),
            writes: each(self.writes, other.writes),
            write_bytes: each(self.write_bytes, other.write_bytes),
            retransmits: each(self.retransmits, other.retransmits),
        }
    }
}

impl Disk {
    /// Returns the disk below a folder; `None` if it lies on no device: in memory, on an overlay, on a network.
    pub(super) fn below(folder: &Path) -> Option<Self> {
        let device = std::fs::metadata(folder).ok()?.dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let disk = Self { major, minor };
        disk.counters().map(|_| disk)
    }

    pub(super) fn counters(&self) -> Option<Traffic> {
        let all = procfs::diskstats().ok()?;
        let own = all
            .iter()
            .find(|disk| u64::try_from(disk.major) == Ok(self.major) && u64::try_from(disk.minor) == Ok(self.minor))?;
        Some(Traffic {
            reads: own.reads,
            read_bytes: own.sectors_read * SECTOR_BYTES,
            writes: own.writes,
            write_bytes: own.sectors_written * SECTOR_BYTES,
            retransmits: 0,
        })
    }
}

/// Returns the counters of the mount that holds a folder; `None` if it is not an NFS mount.
pub(super) fn of_mount(folder: &Path) -> Option<Traffic> {
    of(&std::fs::read_to_string("/proc/self/mountstats").ok()?, folder)
}

/// Parses blocks of lines, one for each mount: `device X mounted on Y with fstype nfs…`, later `READ: ops transmissions
/// timeouts bytes-sent bytes-received …` (Linux, net/sunrpc/stats.c).
fn of(text: &str, folder: &Path) -> Option<Traffic> {
    let mut best: Option<(usize, Traffic)> = None;
    let mut blocks = text.split("\ndevice ");
    let first = blocks
        .next()
        .map(|block| block.strip_prefix("device ").unwrap_or(block));
    for block in first.into_iter().chain(blocks) {
        let Some((head, lines)) = block.split_once('\n') else {
            continue;
        };
        let Some((place, kind)) = head
            .split_once(" mounted on ")
            .and_then(|(_, rest)| rest.split_once(" with fstype "))
        else {
            continue;
        };
        let is_longer = best.is_none_or(|(len, _)| place.len() > len);
        if kind.starts_with("nfs") && !kind.starts_with("nfsd") && folder.starts_with(place) && is_longer {
            best = Some((place.len(), of_operations(lines)));
        }
    }
    best.map(|(_, counted)| counted)
}

fn of_operations(lines: &str) -> Traffic {
    let operation = |name: &str| -> Vec<u64> {
        let line = lines.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.map(|rest| rest.split_whitespace().filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default()
    };
    let (read, write) = (operation("READ:"), operation("WRITE:"));
    let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or_default();
    let again = |numbers: &[u64]| at(numbers, 1).saturating_sub(at(numbers, 0));
    Traffic {
        reads: at(&read, 0),
        read_bytes: at(&read, 4),
        writes: at(&write, 0),
        write_bytes: at(&write, 3),
        retransmits: again(&read) + again(&write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "device sysfs mounted on /sys with fstype sysfs\ndevice filer:/a mounted on /mnt with fstype nfs4 statvers=1.1\n\topts:\trw\n\tper-op statistics\n\t        READ: 10 12 0 1600 41000 1 2 3 0\n\t       WRITE: 4 4 0 9000 500 1 2 3 0\ndevice filer:/b mounted on /mnt/b with fstype nfs statvers=1.1\n\t        READ: 7 7 0 700 7000 1 2 3\n";

    #[test]
    fn the_innermost_mount_is_read() {
        let of = |folder: &str| of(TEXT, Path::new(folder));
        let outer = Traffic {
            reads: 10,
            read_bytes: 41_000,
            writes: 4,
            write_bytes: 9000,
            retransmits: 2,
        };
        assert_eq!(of("/mnt/x"), Some(outer));
        assert_eq!(of("/mnt/b/x").unwrap().reads, 7);
        assert_eq!(of("/sys"), None);
        assert_eq!(of("/home"), None);
    }
}
