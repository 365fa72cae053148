//! Records of the instrument: its self-check with the certificate, and other activity of the machine during a step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Days for which a certificate is valid.
pub const VALID_DAYS: u64 = 7;

/// Result of a self-check: time, program, machine, and every check with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Time of the self-check, UTC, RFC 3339.
    pub made_at: String,
    /// Program that was checked.
    pub program: Program,
    /// Machine of the self-check.
    pub machine: Machine,
    /// Checks of the self-check.
    pub checks: Vec<Check>,
}

/// Build of the load generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Version of the load generator.
    pub version: String,
    /// Git commit of the program's checkout, with `-dirty` if the tree had changes; `unknown` outside a checkout.
    /// Informative: `sha256` identifies a build.
    pub git_commit: String,
    /// Modification time of its executable, UTC, RFC 3339. Informative.
    pub written_at: String,
    /// SHA-256 of its executable; empty in results of earlier versions.
    #[serde(default)]
    pub sha256: String,
}

/// Properties of a machine that affect its timekeeping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// CPU model as the kernel names it.
    pub cpu: String,
    /// Logical cores.
    pub cores: u32,
    /// Kernel release.
    pub kernel: String,
    /// Clock source of the kernel: `tsc`, `kvm-clock`, …
    pub clock_source: String,
    /// Identity of the machine: the first 16 hex digits of a SHA-256 over the system's own id, which must stay private.
    pub id: String,
}

/// Latest certificate of a run's machine, with its validity for that run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedCertificate {
    /// Part of the run that it covers: the time of a resumption (`None`: the first part), or a host in runs merged by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Certificate; absent if none was found, with the searched path in `doubts`.
    pub certificate: Option<Certificate>,
    /// Age at the start of the run, in seconds; absent if its date is invalid or in the future.
    pub age_s: Option<u64>,
    /// Reasons why it is not valid for this run; empty for a valid one.
    pub doubts: Vec<String>,
}

impl CarriedCertificate {
    /// Returns the certificate, if it is valid.
    pub fn proof(&self) -> Option<&Certificate> {
        self.certificate.as_ref().filter(|_| self.doubts.is_empty())
    }
}

/// One check of a self-check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// Expected result.
    pub expected: String,
    /// Measured result.
    pub measured: String,
    /// True if the measured result is within the check's tolerance.
    pub passed: bool,
}

/// Activity of the machine between the start and the end of a step. Shares are of all cores' time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MachineUse {
    /// Number of readings during the step.
    pub samples: u32,
    /// CPU share of processes other than the lab's own.
    pub foreign_cpu_share: f64,
    /// Highest CPU share of foreign processes in one sampling period of the step.
    pub foreign_cpu_share_max: f64,
    /// CPU share of the lab's own processes: load generator, servers, origins.
    pub own_cpu_share: f64,
    /// CPU share that the hypervisor gave to other machines.
    pub steal_share: f64,
    /// Share of the step in which some task waited for a CPU, memory or storage (PSI `some`); `None` if the kernel does
    /// not report it.
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
