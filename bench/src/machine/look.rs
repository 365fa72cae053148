//! Readings of the machine's counters. In: the watched parts. Out: counters, and their differences between two
//! readings.

use super::traffic::{Disk, Traffic, of_mount};
use nix::sys::resource::{UsageWho, getrusage};
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_analysis::record::Limits;
use tierlab_instrument::machine::CpuTicks;
use tierlab_instrument::machine::disturbance::cpu_disturbances;

/// Watched parts: always the CPUs; disk and mount if a folder is given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    disk: Option<Disk>,
    folder: Option<PathBuf>,
}

/// Counters at one moment.
#[derive(Debug)]
pub(crate) struct Look {
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

impl Watched {
    /// Also watches the disk or the mount below a folder.
    pub(crate) fn folder(folder: &Path) -> Self {
        Self {
            disk: Disk::below(folder),
            folder: Some(folder.to_owned()),
        }
    }

    pub(crate) fn look(&self) -> Look {
        Look {
            own_cpu_s: own_cpu_s(),
            cpu: CpuTicks::now(),
            fetched_bytes: Process::myself().and_then(|own| own.io()).ok().map(|io| io.read_bytes),
            disk: self.disk.as_ref().and_then(Disk::counters),
            nfs: self.folder.as_deref().and_then(of_mount),
            at: Instant::now(),
        }
    }
}

/// Returns the CPU seconds of this process so far.
pub(crate) fn own_cpu_s() -> f64 {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

impl Look {
    /// Returns the use since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> MachineUse {
        let own_cpu_s = (self.own_cpu_s - earlier.own_cpu_s).max(0.0);
        let passed = self.cpu.zip(earlier.cpu).map(|(now, then)| now.since(then));
        let shares = passed.filter(|passed| passed.all > 0).map(|passed| {
            // In ticks of the whole machine, of which a control group or an affinity may allow this process a part.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_whole_machine_and_not_of_the_cores_that_this_process_may_use() {
        let look = |own_cpu_s: f64, busy_s: u64| Look {
            own_cpu_s,
            cpu: Some(CpuTicks {
                busy: busy_s * procfs::ticks_per_second(),
                steal: 0,
                all: 2 * busy_s * procfs::ticks_per_second(),
            }),
            ..Watched::default().look()
        };
        // Half of the machine's time was work, and half of that this process's.
        let used = look(32.0, 64).since(&look(0.0, 0));
        assert!((used.foreign_cpu_share.unwrap() - 0.25).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn work_of_its_own_is_not_foreign() {
        let watched = Watched::folder(Path::new("/"));
        let first = watched.look();
        let until = Instant::now() + std::time::Duration::from_millis(50);
        let mut sum = 0_u64;
        while Instant::now() < until {
            sum = std::hint::black_box(sum + 1);
        }
        let used = watched.look().since(&first);
        assert!(used.own_cpu_s > 0.0, "{used:?}");
        assert!(used.foreign_cpu_share.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
