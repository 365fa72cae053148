//! Replay of tiers that were measured elsewhere. In: a profile's file. Out: the law from which latencies are drawn, and
//! the origin of the profile.

use super::faults::InjectedError;
use serde::{Deserialize, Serialize};

mod check;

/// Version of the file format.
pub const SCHEMA: u32 = 1;

/// A measured tier: written by `tierlab-storage-bench calibrate` and read by `emulated.profile = "FILE"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Shares of reads to which the latencies of each point belong: ascending, from 0 to 1.
    pub shares: Vec<f64>,
    /// Measured tier, place and date.
    pub origin: RecordedOrigin,
    /// Highest measured rates.
    pub limits: RecordedLimits,
    /// Errors of reads, after the tier's own retries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<InjectedError>,
    /// Drift between rounds: each round relative to all rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RecordedRound>,
    /// Points: every size at every depth, once.
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
    /// Kind of tier: `s3`, `nfs`, `nvme`.
    pub tier: String,
    /// Wrappers of the tier, and notes that accompany every figure.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Measuring machine.
    pub environment: RecordedEnvironment,
}

/// Measuring machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedEnvironment {
    /// Operating system kernel.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Reading client: program, version and commit.
    pub client: String,
    /// File system, device and mount options below a local tier.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filesystem: String,
}

/// Highest measured rates. A rate limit already shows in the latencies, from which the replay takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedLimits {
    /// Bytes per second of a read after its first byte, from the difference in time between the largest and the next
    /// smaller size.
    pub connection_bytes_per_s: Option<u64>,
    /// Highest bytes per second of all reads together.
    pub total_bytes_per_s: u64,
    /// True if more reads in flight did not increase bytes per second.
    pub total_is_limit: bool,
    /// Highest reads per second.
    pub requests_per_s: u64,
    /// True if more reads in flight did not increase reads per second.
    pub requests_is_limit: bool,
}

/// Round of the measurement.
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
    /// Number of timed reads.
    pub calls: u64,
    /// Timed reads per second.
    pub calls_per_s: f64,
    /// Latencies, one per entry of `shares`, ascending, in microseconds.
    pub latency_us: Vec<f64>,
}

impl Recorded {
    /// Origin in one line: `recorded nfs of "office, 10 GbE", 2026-11-23`. Notes if the recorded tier was itself
    /// emulated or embedded.
    pub fn label(&self) -> String {
        let (date, notes) = (&self.origin.date, self.origin.notes.iter());
        let day = date.get(..10).unwrap_or(date);
        let unreal = notes.filter(|note| note.starts_with("emulated:") || note.contains("embedded"));
        let unreal: String = unreal.map(|note| format!(", itself {note}")).collect();
        let RecordedOrigin { place, tier, .. } = &self.origin;
        format!("recorded {tier} of \"{place}\", {day}{unreal}")
    }
}

/// Maximum latency in microseconds: ten minutes, as in every emulation.
const LONGEST_US: f64 = 600e6;

/// Interpolated latency of a recorded tier: the same numbers give the same latency on every machine.
///
/// Quantiles of one size and depth are interpolated linearly. Between sizes and between depths, equal quantiles are
/// interpolated linearly too. This is exact for a tier with a fixed time to the first byte and a fixed time per further
/// byte, and for a tier at its rate limit. Above the measured range the last line is extended, never downwards; below
/// it the first value holds.
///
/// Latency quantiles over a grid of sizes and depths. Checked by its creator: nothing is empty, all axes ascend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Law {
    /// Ascending, from 0 to 1.
    shares: Vec<f64>,
    sizes: Vec<u64>,
    depths: Vec<u32>,
    /// Quantiles of each depth, for each size, in microseconds.
    us: Vec<Vec<Vec<f64>>>,
}

/// Position of a value on an axis: two neighbouring points, and the fraction of the distance between them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    low: usize,
    high: usize,
    /// Fraction; more than 1 above the last point.
    part: f64,
}

fn place(axis: impl ExactSizeIterator<Item = f64> + Clone, at: f64) -> Place {
    let last = axis.len().saturating_sub(1);
    let above = axis.clone().take_while(|value| *value < at).count();
    let (low, high) = match above {
        0 => (0, 0),
        _ if last == 0 => (0, 0),
        above => (above.min(last) - 1, above.min(last)),
    };
    let mut ends = axis.skip(low).take(high - low + 1);
    let (from, to) = match (ends.next(), ends.next()) {
        (Some(from), Some(to)) => (from, to),
        _ => return Place { low, high, part: 0.0 },
    };
    Place {
        low,
        high,
        part: (at - from) / (to - from),
    }
}

impl Place {
    fn value(self, of: impl Fn(usize) -> f64) -> f64 {
        let (low, high) = (of(self.low), of(self.high));
        if self.part <= 1.0 {
            low + (high - low) * self.part
        } else {
            high + (high - low).max(0.0) * (self.part - 1.0)
        }
    }
}

impl Law {
    /// Latency that the given share of reads of `bytes` bytes does not exceed, with `in_flight` reads in flight,
    /// including this one.
    pub(crate) fn latency_us(&self, share: f64, bytes: u64, in_flight: u32) -> f64 {
        let share = place(self.shares.iter().copied(), share);
        let size = place(self.sizes.iter().map(|bytes| *bytes as f64), bytes as f64);
        let depth = place(self.depths.iter().map(|depth| f64::from(*depth)), f64::from(in_flight));
        let us = size.value(|size| depth.value(|depth| share.value(|at| self.us[size][depth][at])));
        us.clamp(0.0, LONGEST_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tier whose median is `first_us + bytes / rate`, ten times that in the tail, and twice that with 8 in flight.
    fn law() -> Law {
        let one = |bytes: u64, factor: f64| {
            let median = (100.0 + bytes as f64 / 1000.0) * factor;
            vec![median / 2.0, median, 10.0 * median]
        };
        let sizes = vec![4000, 64_000, 1_000_000];
        Law {
            shares: vec![0.0, 0.5, 1.0],
            us: sizes
                .iter()
                .map(|bytes| [1.0, 2.0, 8.0].map(|factor| one(*bytes, factor)).to_vec())
                .collect(),
            sizes,
            depths: vec![1, 8, 32],
        }
    }

    #[test]
    fn what_was_measured_is_what_comes() {
        let law = law();
        for (size, bytes) in law.sizes.clone().into_iter().enumerate() {
            for (depth, in_flight) in law.depths.clone().into_iter().enumerate() {
                for (at, share) in law.shares.clone().into_iter().enumerate() {
                    let got = law.latency_us(share, bytes, in_flight);
                    let want = law.us[size][depth][at];
                    assert!(
                        (got - want).abs() < 1e-9 * want,
                        "{bytes} {in_flight} {share}: {got}, not {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn between_and_above_lines_go_on() {
        let law = law();
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-6 * want, "{got}, not {want}");
        // Half way from 4,000 to 64,000 bytes, and above the largest.
        close(law.latency_us(0.5, 34_000, 1), 134.0);
        close(law.latency_us(0.5, 2_000_000, 1), 2100.0);
        // Between the quantiles.
        close(law.latency_us(0.25, 4000, 1), 78.0);
        // Half way from 8 to 32 in flight: between twice and eight times.
        close(law.latency_us(0.5, 4000, 20), 104.0 * 5.0);
        // Beyond the last depth, at the tier's limit, the latency follows the last line.
        close(law.latency_us(0.5, 4000, 56), 104.0 * 14.0);
        // Below the smallest the first holds.
        close(law.latency_us(0.5, 0, 1), 104.0);
        close(law.latency_us(0.5, 0, 0), 104.0);
    }

    #[test]
    fn a_line_that_falls_is_not_drawn_on() {
        let law = Law {
            shares: vec![0.0, 1.0],
            sizes: vec![10, 20],
            depths: vec![1],
            us: vec![vec![vec![50.0, 50.0]], vec![vec![30.0, 30.0]]],
        };
        assert_eq!(law.latency_us(0.5, 15, 9), 40.0);
        assert_eq!(law.latency_us(0.5, 4000, 9), 30.0);
    }

    proptest! {
        #[test]
        fn every_draw_is_a_time_and_more_share_is_no_shorter(
            a in 0.0f64..=1.0, b in 0.0f64..=1.0, bytes: u64, in_flight: u32
        ) {
            let law = law();
            let (low, high) = (law.latency_us(a.min(b), bytes, in_flight), law.latency_us(a.max(b), bytes, in_flight));
            prop_assert!((0.0..=LONGEST_US).contains(&low) && low <= high + 1e-9 * high, "{low} {high}");
        }
    }
}
