//! The certificate of the self-check as it is kept on a machine, and as a run carries it.

use super::Check;
use serde::{Deserialize, Serialize};

/// Days for which a certificate is valid.
pub const VALID_DAYS: u64 = 7;

/// A finished self-check: when, by what, where, and every line with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// UTC, RFC 3339.
    pub made_at: String,
    /// Program that was checked.
    pub program: Program,
    /// Machine that it was checked on.
    pub machine: Machine,
    /// The lines.
    pub checks: Vec<Check>,
}

/// A build of the load generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its version.
    pub version: String,
    /// Git commit of the checkout that the program lies in, with `-dirty` where the tree had changes; `unknown` outside
    /// of one. For people: `sha256` tells builds apart.
    pub git_commit: String,
    /// When its executable was written, UTC, RFC 3339. For people.
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
    /// Tells machines of one kind apart: the first 16 hex digits of a SHA-256 over the system's own id, which must not
    /// be told itself.
    pub id: String,
}

/// The last certificate of the machine that a run was made on, and what it is worth to that run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedCertificate {
    /// Part of the run that it covers: the time of a resumption (`None`: the first part), or a host in runs merged by earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Absent where none was found; `doubts` says where it was looked for.
    pub certificate: Option<Certificate>,
    /// Its age when the run began, in seconds; absent where its date cannot be read or is in the future.
    pub age_s: Option<u64>,
    /// Why it proves nothing of this run; empty where it is a proof.
    pub doubts: Vec<String>,
}

impl CarriedCertificate {
    /// The certificate, where it is a proof.
    #[must_use]
    pub fn proof(&self) -> Option<&Certificate> {
        self.certificate.as_ref().filter(|_| self.doubts.is_empty())
    }
}
