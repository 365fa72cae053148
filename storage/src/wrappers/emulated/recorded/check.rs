//! Validation of a recorded profile. In: a path or text. Out: a checked profile and its law, or the error and its
//! position. The file is untrusted: its length and every number are bounded.

use super::{Law, Recorded, RecordedPoint, SCHEMA};
use crate::limits::MAX_READ_BYTES;
use crate::{ErrorKind, StorageError};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// Maximum size of a file in bytes; a file of three sizes and three depths has some ten thousand.
const MAX_BYTES: u64 = 8 << 20;
/// Maximum characters of a text that reports show.
const MAX_TEXT: usize = 400;
/// Maximum reads in flight.
const MAX_DEPTH: u32 = 1 << 16;
/// Maximum latency in microseconds: ten minutes, as in every emulation.
const LONGEST_US: f64 = 600e6;

impl Recorded {
    /// Reads a profile's file.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; names the file and the position in it.
    pub fn read(file: &Path) -> Result<Self, StorageError> {
        let source = file.display().to_string();
        let refuse = |why: String| ErrorKind::Invalid.error(&source, why);
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
        let refuse = |why: String| ErrorKind::Invalid.error(source, why);
        // The version is checked first: other keys of another version would be reported as unknown.
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| refuse(trimmed(&e)))?;
        match table.get("schema").and_then(toml::Value::as_integer) {
            Some(schema) if schema == i64::from(SCHEMA) => {}
            Some(schema) => {
                return Err(refuse(format!(
                    "schema: unsupported version {schema}; this build reads version {SCHEMA}"
                )));
            }
            None => return Err(refuse("schema: missing; not a recorded profile".to_owned())),
        }
        let profile: Self = toml::from_str(text).map_err(|e| refuse(trimmed(&e)))?;
        profile.check().map_err(refuse)?;
        Ok(profile)
    }

    /// Serialises the profile.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the profile could not be read back.
    pub fn to_text(&self) -> Result<String, StorageError> {
        let refuse = |why: String| ErrorKind::Invalid.error("recorded profile", why);
        self.check().map_err(refuse)?;
        toml::to_string(self).map_err(|e| refuse(e.to_string()))
    }

    /// Law of a checked profile.
    pub(in super::super) fn law(&self) -> Law {
        let (sizes, depths) = self.axes();
        // Each size is present at every depth exactly once, so the rows of the grid are consecutive.
        let mut points: Vec<&RecordedPoint> = self.points.iter().collect();
        points.sort_unstable_by_key(|point| (point.bytes, point.depth));
        let latencies = |of_size: &[&RecordedPoint]| of_size.iter().map(|point| point.latency_us.clone()).collect();
        let us = points.chunks(depths.len().max(1)).map(latencies).collect();
        Law {
            shares: self.shares.clone(),
            sizes: sizes.into_iter().collect(),
            depths: depths.into_iter().collect(),
            us,
        }
    }

    fn axes(&self) -> (BTreeSet<u64>, BTreeSet<u32>) {
        let sizes = self.points.iter().map(|point| point.bytes).collect();
        (sizes, self.points.iter().map(|point| point.depth).collect())
    }

    fn check(&self) -> Result<(), String> {
        self.check_words()?;
        let ends = (self.shares.first(), self.shares.last());
        if ends != (Some(&0.0), Some(&1.0)) || !self.shares.is_sorted_by(|a, b| a < b) {
            return Err("shares: must ascend from 0 to 1".to_owned());
        }
        for (index, round) in self.rounds.iter().enumerate() {
            let numbers = [round.at_s, round.p50_ratio, round.p99_ratio];
            if !numbers.iter().all(|number| number.is_finite() && *number >= 0.0) {
                return Err(format!("rounds[{index}]: invalid time or ratio"));
            }
        }
        super::super::faults::faults(&self.errors).map_err(|e| format!("{}: {}", e.object(), e.detail()))?;
        if self.points.is_empty() {
            return Err("points: missing".to_owned());
        }
        for (index, point) in self.points.iter().enumerate() {
            self.check_point(point)
                .map_err(|why| format!("points[{index}].{why}"))?;
        }
        self.check_grid()
    }

    fn check_words(&self) -> Result<(), String> {
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
                return Err(format!(
                    "origin.{key}: use at most {MAX_TEXT} characters and no control characters"
                ));
            }
        }
        for (key, text) in [("date", &origin.date), ("place", &origin.place), ("tier", &origin.tier)] {
            if text.trim().is_empty() {
                return Err(format!("origin.{key}: empty; state where the profile was recorded"));
            }
        }
        Ok(())
    }

    fn check_point(&self, point: &RecordedPoint) -> Result<(), String> {
        if !(1..=MAX_READ_BYTES).contains(&point.bytes) {
            return Err(format!("bytes: must be from 1 to {MAX_READ_BYTES}: {}", point.bytes));
        }
        if !(1..=MAX_DEPTH).contains(&point.depth) {
            return Err(format!("depth: must be from 1 to {MAX_DEPTH}: {}", point.depth));
        }
        if point.calls == 0 {
            return Err("calls: must be at least 1".to_owned());
        }
        if !point.calls_per_s.is_finite() || point.calls_per_s < 0.0 {
            return Err(format!("calls_per_s: invalid rate: {}", point.calls_per_s));
        }
        let (us, shares) = (&point.latency_us, self.shares.len());
        if us.len() != shares {
            return Err(format!("latency_us: {} values for {shares} shares", us.len()));
        }
        if let Some(at) = us.iter().position(|us| !(0.0..=LONGEST_US).contains(us)) {
            return Err(format!("latency_us[{at}]: invalid latency: {}", us[at]));
        }
        match us.windows(2).position(|pair| pair[0] > pair[1]) {
            Some(at) => Err(format!("latency_us[{}]: less than the previous one", at + 1)),
            None => Ok(()),
        }
    }

    fn check_grid(&self) -> Result<(), String> {
        let (sizes, depths) = self.axes();
        let mut seen = BTreeSet::new();
        for (index, point) in self.points.iter().enumerate() {
            if !seen.insert((point.bytes, point.depth)) {
                let RecordedPoint { bytes, depth, .. } = point;
                return Err(format!(
                    "points[{index}]: duplicate entry for {bytes} bytes at depth {depth}"
                ));
            }
        }
        let missing = sizes
            .iter()
            .flat_map(|bytes| depths.iter().map(move |depth| (*bytes, *depth)))
            .find(|point| !seen.contains(point));
        match missing {
            Some((bytes, depth)) => Err(format!("points: missing entry for {bytes} bytes at depth {depth}")),
            None => Ok(()),
        }
    }
}

fn trimmed(error: &toml::de::Error) -> String {
    error.to_string().trim_end().to_owned()
}

#[cfg(test)]
mod tests;
