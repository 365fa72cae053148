//! Machine during a measurement: CPU, the disk or NFS mount below a folder, and its description. In: the watched parts. Out: counters
//! from files such as `/proc/diskstats` and `/proc/self/mountstats`, and their differences between two readings.

use anyhow::{Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use procfs::DiskStat;
use procfs::process::{MountStat, NFSOperationStat, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};
use tierlab_analysis::record::Limits;
use tierlab_instrument::host::{Host, filesystem};
use tierlab_instrument::machine::disturbance::cpu_disturbances;
use tierlab_instrument::machine::{CpuTicks, SECTOR_BYTES};
use tierlab_instrument::units::bytes;

/// Machine and build.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Environment {
    pub(crate) date: String,
    #[serde(flatten)]
    pub(crate) host: Host,
    pub(crate) version: String,
    /// File systems below the scratch folders: type, device and options.
    pub(crate) filesystems: BTreeMap<PathBuf, String>,
    /// Load average of one minute at the start.
    pub(crate) load_average: String,
}

impl Environment {
    pub(crate) fn current<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let of_folder = |folder: &Path| (folder.to_owned(), filesystem(folder));
        Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            host: Host::here(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            filesystems: folders.into_iter().map(of_folder).collect(),
            load_average: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Monitor of the CPUs, and of the disk or the mount below a folder, if one is given.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineMonitor(pub(crate) Option<PathBuf>);

/// Counters at one moment.
#[derive(Debug)]
pub(crate) struct MachineSample {
    pub(crate) at: Instant,
    own_cpu_s: f64,
    cpu: Option<CpuTicks>,
    fetched_bytes: Option<u64>,
    disk: Option<Traffic>,
    nfs: Option<Traffic>,
}

/// Use of the machine between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MachineUse {
    /// CPU time of the bench's own process, kernel time included.
    pub(crate) own_cpu_s: f64,
    /// CPU time of all other processes and of kernel threads, without interrupts, as a share of all cores.
    pub(crate) foreign_cpu_share: Option<f64>,
    /// CPU time that the hypervisor gave to others, as a share of all cores.
    pub(crate) steal_share: Option<f64>,
    /// Bytes that the kernel fetched from storage for this process.
    pub(crate) fetched_bytes: Option<u64>,
    /// Disk below a local tier, with the traffic of all processes.
    pub(crate) disk: Option<Traffic>,
    /// NFS mount below a tier.
    pub(crate) nfs: Option<Traffic>,
}

impl MachineUse {
    /// Use of the CPUs by others above the limits, in words.
    pub(crate) fn disturbed(&self, limits: &Limits) -> Option<String> {
        let found = cpu_disturbances(self.foreign_cpu_share, self.steal_share, limits);
        (!found.is_empty()).then(|| found.join(", "))
    }
}

impl MachineMonitor {
    pub(crate) fn sample(&self) -> MachineSample {
        let folder = self.0.as_deref();
        let mounts = || Process::myself().and_then(|own| own.mountstats()).ok();
        MachineSample {
            own_cpu_s: own_cpu_s(),
            cpu: CpuTicks::now(),
            fetched_bytes: Process::myself().and_then(|own| own.io()).ok().map(|io| io.read_bytes),
            disk: folder.and_then(disk_traffic),
            nfs: folder.and_then(|folder| mount_traffic(&mounts()?.0, folder)),
            at: Instant::now(),
        }
    }
}

/// Checks that something that is held in memory fits there.
///
/// # Errors
/// The machine has less memory.
pub(crate) fn check_memory(what: &str, needed: u64) -> Result<()> {
    let memory = Host::here().memory_bytes;
    let [takes, has] = [needed, memory].map(bytes);
    let is_enough = memory == 0 || needed <= memory;
    ensure!(is_enough, "{what} takes {takes} of memory, but this machine has {has}");
    Ok(())
}

/// Returns the CPU seconds of this process so far.
pub(crate) fn own_cpu_s() -> f64 {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

impl MachineSample {
    /// Returns the use since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> MachineUse {
        let own_cpu_s = (self.own_cpu_s - earlier.own_cpu_s).max(0.0);
        let passed = self.cpu.zip(earlier.cpu).map(|(now, then)| now.since(then));
        let shares = passed.filter(|passed| passed.all > 0).map(|passed| {
            // Ticks of the whole machine; a control group or an affinity may allow this process only a part.
            let all = passed.all as f64;
            let foreign = (passed.busy as f64 - own_cpu_s * procfs::ticks_per_second() as f64) / all;
            (foreign.clamp(0.0, 1.0), passed.steal as f64 / all)
        });
        let fetched = self.fetched_bytes.zip(earlier.fetched_bytes);
        MachineUse {
            own_cpu_s,
            foreign_cpu_share: shares.map(|(foreign, _)| foreign),
            steal_share: shares.map(|(_, stolen)| stolen),
            fetched_bytes: fetched.map(|(now, then)| now.saturating_sub(then)),
            disk: self.disk.zip(earlier.disk).map(|(now, then)| now.since(then)),
            nfs: self.nfs.zip(earlier.nfs).map(|(now, then)| now.since(then)),
        }
    }
}

/// Traffic of a disk or a mount since its start, or between two readings.
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
    fn since(self, earlier: Self) -> Self {
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

/// Returns the counters of the disk below a folder; `None` for folders without a device: in memory, on an overlay, on a network.
fn disk_traffic(folder: &Path) -> Option<Traffic> {
    let device = std::fs::metadata(folder).ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let is_own = |disk: &DiskStat| u64::try_from(disk.major) == Ok(major) && u64::try_from(disk.minor) == Ok(minor);
    let own = procfs::diskstats().ok()?.into_iter().find(is_own)?;
    Some(Traffic {
        reads: own.reads,
        read_bytes: own.sectors_read * SECTOR_BYTES,
        writes: own.writes,
        write_bytes: own.sectors_written * SECTOR_BYTES,
        retransmits: 0,
    })
}

/// Returns the counters of the mount that holds a folder; `None` if it is not an NFS mount.
fn mount_traffic(mounts: &[MountStat], folder: &Path) -> Option<Traffic> {
    // Reads follow links and begin in the working folder, like those of the tier.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let above = mounts.iter().filter(|mount| folder.starts_with(&mount.mount_point));
    let mount = above.max_by_key(|mount| mount.mount_point.as_os_str().len())?;
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

    #[test]
    fn shares_are_of_the_whole_machine_and_not_of_the_cores_that_this_process_may_use() {
        let sample = |own_cpu_s: f64, busy_s: u64| MachineSample {
            own_cpu_s,
            cpu: Some(CpuTicks {
                busy: busy_s * procfs::ticks_per_second(),
                steal: 0,
                all: 2 * busy_s * procfs::ticks_per_second(),
            }),
            ..MachineMonitor::default().sample()
        };
        // Half of the machine's time was work, and half of that this process's.
        let used = sample(32.0, 64).since(&sample(0.0, 0));
        assert!((used.foreign_cpu_share.unwrap() - 0.25).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn work_of_its_own_is_not_foreign() {
        let monitor = MachineMonitor(Some("/".into()));
        let first = monitor.sample();
        let until = Instant::now() + std::time::Duration::from_millis(50);
        let mut sum = 0_u64;
        while Instant::now() < until {
            sum = std::hint::black_box(sum + 1);
        }
        let used = monitor.sample().since(&first);
        assert!(used.own_cpu_s > 0.0, "{used:?}");
        assert!(used.foreign_cpu_share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }

    fn nfs(mount: &str, read: &str, write: &str) -> String {
        let numbers = "0 ".repeat(27);
        format!(
            "device filer:/a mounted on {mount} with fstype nfs4 statvers=1.1\n\topts:\trw\n\tage:\t1\n\tcaps:\tcaps=0x1\n\tsec:\tflavor=1\n\
             \tevents:\t{numbers}\n\tbytes:\t0 0 0 0 0 0 0 0\n\tper-op statistics\n\t        READ: {read}\n\t       WRITE: {write}\n\n"
        )
    }

    #[test]
    fn the_mount_behind_a_link_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().canonicalize().unwrap().join("mount");
        let link = folder.path().join("link");
        std::fs::create_dir(&mount).unwrap();
        std::os::unix::fs::symlink(&mount, &link).unwrap();
        let text = nfs(mount.to_str().unwrap(), "7 7 0 700 7000 1 2 3", "0 0 0 0 0 0 0 0");
        let mounts = MountStats::from_buf_read(text.as_bytes()).unwrap().0;
        assert_eq!(mount_traffic(&mounts, &link).unwrap().reads, 7);
    }

    #[test]
    fn the_innermost_mount_is_read() {
        let text = "device sysfs mounted on /sys with fstype sysfs\n".to_owned()
            + &nfs("/mnt", "10 12 0 1600 41000 1 2 3", "4 4 0 9000 500 1 2 3")
            + &nfs("/mnt/b", "7 7 0 700 7000 1 2 3", "0 0 0 0 0 0 0 0");
        let mounts = MountStats::from_buf_read(text.as_bytes()).unwrap().0;
        let of = |folder: &str| mount_traffic(&mounts, Path::new(folder));
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
