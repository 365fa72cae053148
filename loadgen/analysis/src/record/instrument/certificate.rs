//! Certificate of the self-check, as stored on a machine and as carried by a run.

use super::Check;
use serde::{Deserialize, Serialize};

/// Days for which a certificate is valid.
pub const VALID_DAYS: u64 = 7;

/// Result of a self-check: time, program, machine, and every line with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Time of the self-check, UTC, RFC 3339.
    pub made_at: String,
    /// Program that was checked.
    pub program: Program,
    /// Machine of the self-check.
    pub machine: Machine,
    /// Lines of the self-check.
    pub checks: Vec<Check>,
}

/// Build of the load generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version of the load generator.
    pub version: String,
    /// Git commit of the program's checkout, with `-dirty` if the tree had changes; `unknown` outside a checkout. For
    /// people: `sha256` identifies a build.
    pub git_commit: String,
    /// Modification time of its executable, UTC, RFC 3339. For people.
    pub written_at: String,
    /// SHA-256 of its executable; empty in results of earlier versions.
    #[serde(default)]
    pub sha256: String,
}

/// Properties of a machine that affect its timekeeping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedCertificate {
    /// Part of the run that it covers: the time of a resumption (`None`: the first part), or a host in runs merged by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Certificate; absent if none was found, with the searched place in `doubts`.
    pub certificate: Option<Certificate>,
    /// Age at the start of the run, in seconds; absent if its date is invalid or in the future.
    pub age_s: Option<u64>,
    /// Reasons for which it proves nothing about this run; empty for a valid one.
    pub doubts: Vec<String>,
}

impl CarriedCertificate {
    /// Returns the certificate, if it is valid.
    #[must_use]
    pub fn proof(&self) -> Option<&Certificate> {
        self.certificate.as_ref().filter(|_| self.doubts.is_empty())
    }
}
