//! File format of a recorded profile. In and out: TOML, of a stated version. Plain data; `check` and `law` interpret
//! it.

use super::super::fault::InjectedError;
use serde::{Deserialize, Serialize};

/// The version of the file that this build writes and reads.
pub const SCHEMA: u32 = 1;

/// A measured tier: written by `tierlab-storage-bench calibrate` and read by `emulated.profile = "FILE"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The shares of reads that the latencies of each point belong to: ascending, from 0 to 1.
    pub shares: Vec<f64>,
    /// Measured tier, place and date.
    pub origin: RecordedOrigin,
    /// Rates that were reached.
    pub limits: RecordedLimits,
    /// Errors that reads ended in, the tier's own repeats included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InjectedError>,
    /// Drift between rounds: each round relative to all rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RecordedRound>,
    /// Every size at every depth, once.
    pub points: Vec<RecordedPoint>,
}

/// Measured tier, place and date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedOrigin {
    /// Start of the measurement, RFC 3339.
    pub date: String,
    /// Place as given by the person who measured: region, machine, network.
    pub place: String,
    /// The tier's kind: `s3`, `nfs`, `nvme`.
    pub tier: String,
    /// Wrappers of the tier, and notes that accompany every figure.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The machine that measured.
    pub environment: RecordedEnvironment,
}

/// The machine that measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedEnvironment {
    /// Kernel of the operating system.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The client that read: program, version and commit.
    pub client: String,
    /// File system, device and mount options below a local tier.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filesystem: String,
}

/// Highest measured rates. A rate limit already shows in the latencies, from which the replay takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedLimits {
    /// Bytes per second of one read after its first byte, from the difference in time between the largest and the next
    /// smaller size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_bytes_per_s: Option<u64>,
    /// The most bytes per second of all reads together.
    pub total_bytes_per_s: u64,
    /// True if more reads in flight brought no more bytes.
    pub total_is_limit: bool,
    /// The most reads per second.
    pub requests_per_s: u64,
    /// True if more reads in flight brought no more reads per second.
    pub requests_is_limit: bool,
}

/// A round of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRound {
    /// Seconds from the start of the first round to the start of this round.
    pub at_s: f64,
    /// Median of this round divided by the median of all rounds; geometric mean over the points.
    pub p50_ratio: f64,
    /// Same ratio for the 99th percentile.
    pub p99_ratio: f64,
}

/// Measurement of one size at one depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedPoint {
    /// Bytes of each read.
    pub bytes: u64,
    /// Reads in flight.
    pub depth: u32,
    /// Reads that were timed.
    pub calls: u64,
    /// Timed reads per second.
    pub calls_per_s: f64,
    /// Latencies, one per entry of `shares`, ascending, in microseconds.
    pub latency_us: Vec<f64>,
}

impl Recorded {
    /// Origin in one line: `recorded nfs of "office, 10 GbE", 2026-11-23`. The line says if the recorded tier was
    /// itself emulated or embedded.
    #[must_use]
    pub fn label(&self) -> String {
        let RecordedOrigin {
            date,
            place,
            tier,
            notes,
            ..
        } = &self.origin;
        let day = date.get(..10).unwrap_or(date);
        let unreal = notes
            .iter()
            .filter(|note| note.starts_with("emulated:") || note.contains("embedded"));
        let unreal: String = unreal.map(|note| format!(", itself {note}")).collect();
        format!("recorded {tier} of \"{place}\", {day}{unreal}")
    }
}
