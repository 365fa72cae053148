//! Other activity of the machine during a step.

use serde::{Deserialize, Serialize};

/// Activity of the machine between the start and the end of a step. Shares are of all cores' time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineUse {
    /// Number of readings during the step.
    pub samples: u32,
    /// CPU share of processes other than the lab's own.
    pub foreign_cpu_share: f64,
    /// Highest CPU share of foreign processes in one sampling period of the step.
    pub foreign_cpu_share_max: f64,
    /// CPU share of the lab's own processes: load generator, servers, origins.
    pub own_cpu_share: f64,
    /// Share that the hypervisor gave to others.
    pub steal_share: f64,
    /// Share of the step in which some task waited for a CPU, for memory, for storage (PSI `some`); `None` if the
    /// kernel does not report it.
    pub cpu_pressure: Option<f64>,
    /// See `cpu_pressure`.
    pub memory_pressure: Option<f64>,
    /// See `cpu_pressure`.
    pub io_pressure: Option<f64>,
    /// Context switches per second.
    pub context_switches_per_s: f64,
    /// Mean frequency of the cores in MHz; `None` if the kernel does not report it.
    pub cpu_mhz: Option<f64>,
    /// Bytes per second read from and written to disks.
    pub disk_bytes_per_s: f64,
    /// Bytes per second over network interfaces except loopback.
    pub network_bytes_per_s: f64,
    /// Bytes per second from and to disks, less those of the lab's own processes. `None` if the kernel does not report
    /// them.
    #[serde(default)]
    pub foreign_disk_bytes_per_s: Option<f64>,
    /// Bytes per second over network interfaces. `None` if the lab's own processes reach other machines too, or the
    /// kernel does not report them.
    #[serde(default)]
    pub foreign_network_bytes_per_s: Option<f64>,
    /// `io_pressure` times the share of the storage traffic that is not the lab's own.
    #[serde(default)]
    pub foreign_io_pressure: Option<f64>,
    /// `memory_pressure` times the share of the used memory that is not the lab's own.
    #[serde(default)]
    pub foreign_memory_pressure: Option<f64>,
    /// Foreign load that cannot be separated from the lab's own, or that the kernel does not report; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}
