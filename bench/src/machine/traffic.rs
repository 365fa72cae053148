//! Traffic of the storage below a folder. In: a folder. Out: the counters of the device in `/proc/diskstats`, and of the NFS mount in
//! `/proc/self/mountstats`.

use procfs::process::{MountStat, NFSOperationStat, Process};
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
    let mounts = Process::myself().and_then(|own| own.mountstats()).ok()?;
    of(&mounts.0, folder)
}

fn of(mounts: &[MountStat], folder: &Path) -> Option<Traffic> {
    let around = mounts.iter().filter(|mount| folder.starts_with(&mount.mount_point));
    let mount = around.max_by_key(|mount| mount.mount_point.as_os_str().len())?;
    let operations = &mount.statistics.as_ref()?.per_op_stats;
    let sum = |names: &[&str], value: fn(&NFSOperationStat) -> u64| -> u64 {
        names.iter().filter_map(|name| operations.get(*name)).map(value).sum()
    };
    Some(Traffic {
        reads: sum(&["READ"], |of| of.operations),
        read_bytes: sum(&["READ"], |of| of.bytes_recv),
        writes: sum(&["WRITE"], |of| of.operations),
        write_bytes: sum(&["WRITE"], |of| of.bytes_sent),
        retransmits: sum(&["READ", "WRITE"], |of| of.transmissions.saturating_sub(of.operations)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufRead as _;
    use procfs::process::MountStats;

    fn nfs(mount: &str, read: &str, write: &str) -> String {
        let numbers = "0 ".repeat(27);
        format!(
            "device filer:/a mounted on {mount} with fstype nfs4 statvers=1.1\n\topts:\trw\n\tage:\t1\n\tcaps:\tcaps=0x1\n\tsec:\tflavor=1\n\
             \tevents:\t{numbers}\n\tbytes:\t0 0 0 0 0 0 0 0\n\tper-op statistics\n\t        READ: {read}\n\t       WRITE: {write}\n\n"
        )
    }

    #[test]
    fn the_innermost_mount_is_read() {
        let text = "device sysfs mounted on /sys with fstype sysfs\n".to_owned()
            + &nfs("/mnt", "10 12 0 1600 41000 1 2 3", "4 4 0 9000 500 1 2 3")
            + &nfs("/mnt/b", "7 7 0 700 7000 1 2 3", "0 0 0 0 0 0 0 0");
        let mounts = MountStats::from_buf_read(text.as_bytes()).unwrap().0;
        let of = |folder: &str| of(&mounts, Path::new(folder));
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
