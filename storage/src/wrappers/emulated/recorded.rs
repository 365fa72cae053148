//! Replay of tiers that were measured elsewhere. In: a profile's file. Out: the law from which latencies are drawn, and
//! the origin of the profile, or the error and its position. The file is untrusted: its length and every number are
//! bounded.

use super::latency::{InjectedError, MAX_LATENCY_US, faults};
use crate::limits::MAX_READ_BYTES;
use crate::{ErrorKind, StorageError};
use anyhow::{Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// Version of the file format.
pub const SCHEMA: u32 = 1;
/// Maximum size of a file in bytes; a file of three sizes and three depths has some ten thousand.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum characters of a text that reports show.
const MAX_TEXT: usize = 400;
/// Maximum reads in flight.
const MAX_DEPTH: u32 = 1 << 16;

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
    sizes: Vec<f64>,
    depths: Vec<f64>,
    /// Quantiles of each depth, for each size, in microseconds.
    us: Vec<Vec<Vec<f64>>>,
}

/// Position of a value on an axis: two neighbouring points, and the fraction of the distance between them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Position {
    low: usize,
    high: usize,
    /// Fraction; more than 1 above the last point.
    part: f64,
}

impl Position {
    /// Position on an ascending axis.
    fn of(axis: &[f64], value: f64) -> Self {
        let high = axis.partition_point(|at| *at < value).min(axis.len() - 1);
        let low = high.saturating_sub(1);
        let part = match high > low {
            true => (value - axis[low]) / (axis[high] - axis[low]),
            false => 0.0,
        };
        Self { low, high, part }
    }

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
        let share = Position::of(&self.shares, share);
        let size = Position::of(&self.sizes, bytes as f64);
        let depth = Position::of(&self.depths, f64::from(in_flight));
        let us = size.value(|size| depth.value(|depth| share.value(|at| self.us[size][depth][at])));
        us.clamp(0.0, MAX_LATENCY_US)
    }
}

impl Recorded {
    /// Reads a profile's file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names the file and the position in it.
    pub fn read(file: &Path) -> Result<Self, StorageError> {
        let source = file.display().to_string();
        let refuse = |detail: String| ErrorKind::Invalid.error(&source, detail);
        let cannot = |e: std::io::Error| refuse(format!("cannot read recorded profile: {e}"));
        // Checked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(file).map_err(cannot)?.is_file() {
            return Err(refuse("not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        let open = std::fs::File::open(file).map_err(cannot)?;
        open.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(refuse(format!("not a recorded profile: longer than {MAX_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes)
            .map_err(|e| refuse(format!("byte {}: not UTF-8", e.utf8_error().valid_up_to())))?;
        Self::parse(&source, &text)
    }

    /// Parses a profile; `source` names it in errors.
    ///
    /// # Errors
    /// Same as [`Recorded::read`].
    pub fn parse(source: &str, text: &str) -> Result<Self, StorageError> {
        let refuse = |detail: String| ErrorKind::Invalid.error(source, detail);
        // The version is checked first: other keys of another version would be reported as unknown.
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| refuse(trimmed(&e)))?;
        match table.get("schema").and_then(toml::Value::as_integer) {
            Some(schema) if schema == i64::from(SCHEMA) => {}
            Some(schema) => {
                let detail = format!("schema: unsupported version {schema}; this build reads version {SCHEMA}");
                return Err(refuse(detail));
            }
            None => return Err(refuse("schema: missing; not a recorded profile".to_owned())),
        }
        let profile: Self = toml::from_str(text).map_err(|e| refuse(trimmed(&e)))?;
        profile.check().map_err(|e| refuse(e.to_string()))?;
        Ok(profile)
    }

    /// Serialises the profile.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the profile could not be read back.
    pub fn to_text(&self) -> Result<String, StorageError> {
        let refuse = |detail: String| ErrorKind::Invalid.error("recorded profile", detail);
        self.check().map_err(|e| refuse(e.to_string()))?;
        toml::to_string(self).map_err(|e| refuse(e.to_string()))
    }

    /// Law of a checked profile.
    pub(super) fn law(&self) -> Law {
        let (sizes, depths) = self.axes();
        // Each size is present at every depth exactly once, so the rows of the grid are consecutive.
        let mut points: Vec<&RecordedPoint> = self.points.iter().collect();
        points.sort_unstable_by_key(|point| (point.bytes, point.depth));
        let latencies = |of_size: &[&RecordedPoint]| of_size.iter().map(|point| point.latency_us.clone()).collect();
        let us = points.chunks(depths.len().max(1)).map(latencies).collect();
        Law {
            shares: self.shares.clone(),
            sizes: sizes.into_iter().map(|bytes| bytes as f64).collect(),
            depths: depths.into_iter().map(f64::from).collect(),
            us,
        }
    }

    fn axes(&self) -> (BTreeSet<u64>, BTreeSet<u32>) {
        let sizes = self.points.iter().map(|point| point.bytes).collect();
        (sizes, self.points.iter().map(|point| point.depth).collect())
    }

    fn check(&self) -> Result<()> {
        self.check_texts()?;
        let ends = (self.shares.first(), self.shares.last());
        if ends != (Some(&0.0), Some(&1.0)) || !self.shares.is_sorted_by(|a, b| a < b) {
            bail!("shares: must ascend from 0 to 1");
        }
        for (index, round) in self.rounds.iter().enumerate() {
            let numbers = [round.at_s, round.p50_ratio, round.p99_ratio];
            if !numbers.iter().all(|number| number.is_finite() && *number >= 0.0) {
                bail!("rounds[{index}]: invalid time or ratio");
            }
        }
        faults(&self.errors).map_err(|e| anyhow!("{}: {}", e.object(), e.detail()))?;
        ensure!(!self.points.is_empty(), "points: missing");
        for (index, point) in self.points.iter().enumerate() {
            self.check_point(point)
                .map_err(|detail| anyhow!("points[{index}].{detail}"))?;
        }
        self.check_grid()
    }

    fn check_texts(&self) -> Result<()> {
        let origin = &self.origin;
        let environment = &origin.environment;
        let named = [
            ("date", &origin.date),
            ("place", &origin.place),
            ("tier", &origin.tier),
            ("environment.kernel", &environment.kernel),
            ("environment.cpu", &environment.cpu),
            ("environment.client", &environment.client),
            ("environment.filesystem", &environment.filesystem),
        ];
        let notes = origin.notes.iter().map(|note| ("notes", note));
        for (key, text) in named.into_iter().chain(notes) {
            // The texts are shown in terminals, logs and pages.
            if text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) {
                bail!("origin.{key}: use at most {MAX_TEXT} characters and no control characters");
            }
            if ["date", "place", "tier"].contains(&key) && text.trim().is_empty() {
                bail!("origin.{key}: empty; state where the profile was recorded");
            }
        }
        Ok(())
    }

    fn check_point(&self, point: &RecordedPoint) -> Result<()> {
        if !(1..=MAX_READ_BYTES).contains(&point.bytes) {
            bail!("bytes: must be from 1 to {MAX_READ_BYTES}: {}", point.bytes);
        }
        if !(1..=MAX_DEPTH).contains(&point.depth) {
            bail!("depth: must be from 1 to {MAX_DEPTH}: {}", point.depth);
        }
        ensure!(point.calls > 0, "calls: must be at least 1");
        if !point.calls_per_s.is_finite() || point.calls_per_s < 0.0 {
            bail!("calls_per_s: invalid rate: {}", point.calls_per_s);
        }
        let (us, shares) = (&point.latency_us, self.shares.len());
        if us.len() != shares {
            bail!("latency_us: {} values for {shares} shares", us.len());
        }
        if let Some(at) = us.iter().position(|us| !(0.0..=MAX_LATENCY_US).contains(us)) {
            bail!("latency_us[{at}]: invalid latency: {}", us[at]);
        }
        match us.windows(2).position(|pair| pair[0] > pair[1]) {
            Some(at) => bail!("latency_us[{}]: less than the previous one", at + 1),
            None => Ok(()),
        }
    }

    fn check_grid(&self) -> Result<()> {
        let (sizes, depths) = self.axes();
        let mut seen = BTreeSet::new();
        for (index, point) in self.points.iter().enumerate() {
            if !seen.insert((point.bytes, point.depth)) {
                let RecordedPoint { bytes, depth, .. } = point;
                bail!("points[{index}]: duplicate entry for {bytes} bytes at depth {depth}");
            }
        }
        let missing = sizes
            .iter()
            .flat_map(|bytes| depths.iter().map(move |depth| (*bytes, *depth)))
            .find(|point| !seen.contains(point));
        match missing {
            Some((bytes, depth)) => bail!("points: missing entry for {bytes} bytes at depth {depth}"),
            None => Ok(()),
        }
    }
}

fn trimmed(error: &toml::de::Error) -> String {
    error.to_string().trim_end().to_owned()
}

#[cfg(test)]
mod tests;
