//! Other activity of the machine during a step.

use serde::{Deserialize, Serialize};

/// Activity of the machine between the start and the end of a step. Shares are of all cores' time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineUse {
    /// Looks at it during the step.
    pub samples: u32,
    /// CPU of processes that are not the lab's own: all that was busy, less its own.
    pub foreign_cpu_share: f64,
    /// The same of the busiest of the step's sampling periods.
    pub foreign_cpu_share_max: f64,
    /// CPU of the lab's own processes: load generator, servers, origins.
    pub own_cpu_share: f64,
    /// Time that the hypervisor gave to others.
    pub steal_share: f64,
    /// Share of the step in which some task waited for a CPU, for memory, for storage (PSI `some`); `None` where the
    /// kernel does not say.
    pub cpu_pressure: Option<f64>,
    /// See `cpu_pressure`.
    pub memory_pressure: Option<f64>,
    /// See `cpu_pressure`.
    pub io_pressure: Option<f64>,
    /// Context switches per second.
    pub context_switches_per_s: f64,
    /// Mean frequency of the cores in MHz; `None` where the kernel does not say.
    pub cpu_mhz: Option<f64>,
    /// Bytes per second read from and written to disks.
    pub disk_bytes_per_s: f64,
    /// Bytes per second over network interfaces but loopback.
    pub network_bytes_per_s: f64,
    /// Bytes per second from and to disks, less those of the lab's own processes. `None` where the kernel does not say.
    #[serde(default)]
    pub foreign_disk_bytes_per_s: Option<f64>,
    /// Bytes per second over network interfaces. `None` where the lab's own processes reach other machines too, or the kernel does
    /// not say.
    #[serde(default)]
    pub foreign_network_bytes_per_s: Option<f64>,
    /// `io_pressure` times the share of the storage traffic that is not the lab's own.
    #[serde(default)]
    pub foreign_io_pressure: Option<f64>,
    /// `memory_pressure` times the share of the used memory that is not the lab's own.
    #[serde(default)]
    pub foreign_memory_pressure: Option<f64>,
    /// Foreign load that cannot be told from the lab's own, or that the kernel does not show; in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}
