//! NFS client of the kernel. In: a folder below a mount. Out: the counters of the mount in `/proc/self/mountstats`.

use serde::{Deserialize, Serialize};
use std::path::Path;

/// Counters of a mount since it was mounted, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NfsUse {
    /// READ calls.
    pub(crate) reads: u64,
    /// Bytes read by READ calls.
    pub(crate) read_bytes: u64,
    /// WRITE calls.
    pub(crate) writes: u64,
    /// Retransmitted calls.
    pub(crate) retransmits: u64,
}

/// Returns the counters of the mount that holds a folder; `None` if it is not an NFS mount.
pub(super) fn counters(folder: &Path) -> Option<NfsUse> {
    of(&std::fs::read_to_string("/proc/self/mountstats").ok()?, folder)
}

/// Parses blocks of lines, one for each mount: `device X mounted on Y with fstype nfs…`, later `READ: ops transmissions
/// timeouts bytes-sent bytes-received …` (Linux, net/sunrpc/stats.c).
fn of(text: &str, folder: &Path) -> Option<NfsUse> {
    let mut best: Option<(usize, NfsUse)> = None;
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
            best = Some((place.len(), of_block(lines)));
        }
    }
    best.map(|(_, counted)| counted)
}

fn of_block(lines: &str) -> NfsUse {
    let operation = |name: &str| -> Vec<u64> {
        let line = lines.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.map(|rest| rest.split_whitespace().filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default()
    };
    let (read, write) = (operation("READ:"), operation("WRITE:"));
    let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or_default();
    let again = |numbers: &[u64]| at(numbers, 1).saturating_sub(at(numbers, 0));
    NfsUse {
        reads: at(&read, 0),
        read_bytes: at(&read, 4),
        writes: at(&write, 0),
        retransmits: again(&read) + again(&write),
    }
}

impl NfsUse {
    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            retransmits: self.retransmits.saturating_sub(earlier.retransmits),
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            retransmits: self.retransmits + other.retransmits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "device sysfs mounted on /sys with fstype sysfs\ndevice filer:/a mounted on /mnt with fstype nfs4 statvers=1.1\n\topts:\trw\n\tper-op statistics\n\t        READ: 10 12 0 1600 41000 1 2 3 0\n\t       WRITE: 4 4 0 9000 500 1 2 3 0\ndevice filer:/b mounted on /mnt/b with fstype nfs statvers=1.1\n\t        READ: 7 7 0 700 7000 1 2 3\n";

    #[test]
    fn the_innermost_mount_is_read() {
        let of = |folder: &str| of(TEXT, Path::new(folder));
        let outer = NfsUse {
            reads: 10,
            read_bytes: 41_000,
            writes: 4,
            retransmits: 2,
        };
        assert_eq!(of("/mnt/x"), Some(outer));
        assert_eq!(of("/mnt/b/x").unwrap().reads, 7);
        assert_eq!(of("/sys"), None);
        assert_eq!(of("/home"), None);
    }
}
