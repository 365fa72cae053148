//! One sample of the kernel's counters.
//!
//! In: `/proc`. Out: its counters. Independent of their meaning.

use super::processes::{Processes, Traffic};
use super::sockets::has_remote_connections;
use procfs::{CpuInfo, CpuPressure, Current, CurrentSI, IoPressure, KernelStats, Meminfo, MemoryPressure};
use std::path::Path;
use std::time::Instant;

/// Bytes of a sector in `/proc/diskstats`, for any disk (Documentation/admin-guide/iostats.rst).
pub const SECTOR_BYTES: u64 = 512;

/// CPU time of all cores so far, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuTicks {
    /// User and system time, without interrupts and I/O wait.
    pub busy: u64,
    /// Steal time: given to others by the hypervisor.
    pub steal: u64,
    /// Sum of all times.
    pub all: u64,
}

impl CpuTicks {
    /// Reads the ticks so far; `None` if the kernel shows none.
    pub fn now() -> Option<Self> {
        KernelStats::current().ok().map(|kernel| Self::of(&kernel))
    }

    fn of(kernel: &KernelStats) -> Self {
        let cpu = &kernel.total;
        let busy = cpu.user + cpu.nice + cpu.system;
        let [iowait, irq, softirq, steal] =
            [cpu.iowait, cpu.irq, cpu.softirq, cpu.steal].map(Option::unwrap_or_default);
        Self {
            busy,
            steal,
            all: busy + cpu.idle + iowait + irq + softirq + steal,
        }
    }

    /// Returns the ticks since earlier ones.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            steal: self.steal.saturating_sub(earlier.steal),
            all: self.all.saturating_sub(earlier.all),
        }
    }
}

/// Counters at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counters {
    pub(super) at: Instant,
    pub(super) cpu: CpuTicks,
    /// CPU of the lab's own processes, in ticks.
    pub(super) own: u64,
    pub(super) context_switches: u64,
    /// Counters read only by a detailed sample.
    pub(super) details: Option<Details>,
}

/// Counters that take longer to read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Details {
    /// CPU of kernel threads, in ticks.
    pub(super) kernel: u64,
    /// Microseconds in which some task waited, for: CPU, memory, storage.
    pub(super) waited_us: [Option<u64>; 3],
    pub(super) cpu_mhz: Option<f64>,
    /// Traffic of the machine's disks; `None` if the kernel shows none.
    pub(super) disk: Option<Traffic>,
    /// Traffic of the lab's own processes to and from storage; `None` if unreadable.
    pub(super) own_traffic: Option<Traffic>,
    /// Traffic of the network interfaces, in bytes; `None` if the kernel shows none.
    pub(super) network_bytes: Option<u64>,
    /// If true, some of the network traffic is the lab's own.
    pub(super) has_own_network: bool,
    /// Share of the used memory that belongs to the lab's own processes; `None` if a control group limits their memory.
    pub(super) own_memory: Option<f64>,
}

impl Counters {
    /// Reads the CPU time of the cores and of known processes.
    pub(super) fn quick(processes: &mut Processes) -> Option<Self> {
        processes.count();
        let kernel = KernelStats::current().ok()?;
        Some(Self {
            at: Instant::now(),
            cpu: CpuTicks::of(&kernel),
            own: processes.own_ticks,
            context_switches: kernel.ctxt,
            details: None,
        })
    }

    /// Reads everything, including new processes.
    pub(super) fn detailed(processes: &mut Processes) -> Option<Self> {
        processes.scan();
        let quick = Self::quick(processes)?;
        Some(Self {
            details: Some(Details {
                kernel: processes.kernel_ticks,
                waited_us: [
                    CpuPressure::current().ok().map(|pressure| pressure.some.total),
                    MemoryPressure::current().ok().map(|pressure| pressure.some.total),
                    IoPressure::current().ok().map(|pressure| pressure.some.total),
                ],
                cpu_mhz: cpu_mhz(),
                disk: disk(),
                own_traffic: processes.own_traffic(),
                network_bytes: network_bytes(),
                has_own_network: has_remote_connections(processes),
                own_memory: own_memory_share(processes.own_resident_bytes),
            }),
            ..quick
        })
    }
}

/// Mean over the cores; `None` if the kernel does not report it, as on ARM.
fn cpu_mhz() -> Option<f64> {
    let info = CpuInfo::current().ok()?;
    let each = (0..info.num_cores()).filter_map(|core| info.get_field(core, "cpu MHz")?.parse().ok());
    let each: Vec<f64> = each.collect();
    (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
}

/// Traffic of the machine's disks, which includes that of partitions and mapped devices.
fn disk() -> Option<Traffic> {
    let all = procfs::diskstats().ok()?;
    let is_hardware = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
    let traffic = all.iter().filter(|disk| is_hardware(&disk.name)).map(|disk| Traffic {
        read: SECTOR_BYTES * disk.sectors_read,
        written: SECTOR_BYTES * disk.sectors_written,
    });
    traffic.reduce(|a, b| Traffic {
        read: a.read + b.read,
        written: a.written + b.written,
    })
}

/// Bytes of the machine's network cards, since bridges repeat them; in a container without cards, bytes of all interfaces except loopback.
fn network_bytes() -> Option<u64> {
    let all = procfs::net::dev_status().ok()?;
    let is_card = |name: &str| Path::new("/sys/class/net").join(name).join("device").exists();
    let has_cards = all.keys().any(|name| is_card(name));
    let counted = all
        .values()
        .filter(|device| device.name != "lo" && (!has_cards || is_card(&device.name)));
    Some(counted.map(|device| device.recv_bytes + device.sent_bytes).sum())
}

fn own_memory_share(own: u64) -> Option<f64> {
    let memory = Meminfo::current().ok().filter(|_| !has_memory_limit())?;
    let used = memory.mem_total.saturating_sub(memory.mem_available?);
    Some((own as f64 / used.max(1) as f64).min(1.0))
}

/// True if a control group limits the memory of this process: waits for that limit are part of the machine's pressure.
fn has_memory_limit() -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let limit = std::fs::read_to_string(format!("/sys/fs/cgroup{}/memory.max", group.unwrap_or_default()));
    limit.is_ok_and(|limit| limit.trim() != "max")
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromReadSI as _;

    #[test]
    fn interrupts_and_waiting_for_disks_are_nobodys_work() {
        let text = "cpu  10 20 30 40 50 6 7 8 9 9\nctxt 5\nbtime 1\nprocesses 2\nprocs_running 1\nprocs_blocked 0\n";
        let kernel = KernelStats::from_read(text.as_bytes(), procfs::current_system_info()).unwrap();
        let busy = 10 + 20 + 30;
        let ticks = CpuTicks::of(&kernel);
        assert_eq!(
            ticks,
            CpuTicks {
                busy,
                steal: 8,
                all: 171
            }
        );
        let since = ticks.since(CpuTicks {
            busy: 50,
            steal: 8,
            all: 100,
        });
        assert_eq!((since.busy, since.steal, since.all), (10, 0, 71));
    }
}
