//! The stages of a request and the `Server-Timing` header that reports them.
//!
//! In: durations measured by the server on a monotonic clock. Out: header text, and back.
//! The eight stages partition the server's time for a request: they sum to `total`.
//! Header syntax: W3C Server Timing, <https://www.w3.org/TR/server-timing/> (`dur` in milliseconds).

use crate::via::ViaSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write as _;
use std::time::Duration;
use strum::{IntoStaticStr, VariantArray};

/// Stage of a request, in the order of processing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Stage {
    /// Converting the received bytes of the body, compressed or not, to a typed request.
    Decode,
    /// Waiting for admission, and admission itself.
    Admit,
    /// Looking up rows in the cache, including copies of hits.
    Cache,
    /// Waiting for the tier: every read not answered by the cache.
    Tier,
    /// Converting rows to input tensors: checksum, gather, layout.
    Join,
    /// Waiting for the batch to close and for a session to take it.
    Batch,
    /// Running ONNX Runtime.
    Infer,
    /// Converting output tensors to the reply's bytes. Over gRPC, compression follows it.
    Encode,
}

impl Stage {
    /// The number of stages.
    pub const COUNT: usize = Self::VARIANTS.len();

    /// Every stage, in order.
    pub const ALL: [Self; Self::COUNT] = *Self::VARIANTS.first_chunk().unwrap();

    /// The name in headers, metrics and results.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Durations as whole microseconds, in messages. The sum of any received ones fits a duration.
mod micros {
    use super::{Deserialize as _, Deserializer, Duration, Serialize as _, Serializer, Stage};

    pub(super) fn of(time: Duration) -> u64 {
        let micros = time.as_secs().saturating_mul(1_000_000);
        micros.saturating_add(time.subsec_micros().into())
    }

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        of(*time).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }

    pub(super) fn write<S: Serializer>(stages: &[Duration; Stage::COUNT], serializer: S) -> Result<S::Ok, S::Error> {
        stages.map(of).serialize(serializer)
    }

    pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[Duration; Stage::COUNT], D::Error> {
        let stages = <[u64; Stage::COUNT]>::deserialize(deserializer)?;
        Ok(stages.map(Duration::from_micros))
    }
}

/// Parts of the tier stage, as reported by the tier. Parallel reads overlap, so the parts describe the longest read and need
/// not sum to the stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSplit {
    /// Time waiting for a slot, a connection or the engine.
    #[serde(with = "micros")]
    pub queue: Duration,
    /// Time at the device or the server.
    #[serde(with = "micros")]
    pub device: Duration,
    /// Time of copies after the bytes arrived.
    #[serde(with = "micros")]
    pub copy: Duration,
}

/// Time of each stage of one request. Travels with the request through the pipeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimings {
    #[serde(serialize_with = "micros::write", deserialize_with = "micros::read")]
    stages: [Duration; Stage::COUNT],
    /// Parts of the tier stage.
    pub tier_split: TierSplit,
    /// Requests the tier made for this request (GETs, READs, SQEs).
    pub tier_requests: u32,
    /// Blocks found in the cache.
    pub cache_hits: u32,
    /// Blocks not found in the cache.
    pub cache_misses: u32,
    /// Rows in the batch in which the request was inferred.
    pub batch_rows: u32,
    /// Paths of the request's reads; empty without a join.
    pub via: ViaSet,
}

impl StageTimings {
    /// The time of one stage.
    pub const fn get(&self, stage: Stage) -> Duration {
        self.stages[stage as usize]
    }

    /// Adds to the time of one stage.
    pub fn add(&mut self, stage: Stage, time: Duration) {
        self.stages[stage as usize] += time;
    }

    /// The sum over all stages: the server's time for the request.
    pub fn total(&self) -> Duration {
        self.stages.iter().sum()
    }

    /// The value of the `Server-Timing` header.
    pub fn to_header(&self) -> String {
        let mut out = String::with_capacity(320);
        for stage in Stage::ALL {
            push_duration(&mut out, stage.as_str(), self.get(stage));
        }
        push_duration(&mut out, "tier-queue", self.tier_split.queue);
        push_duration(&mut out, "tier-device", self.tier_split.device);
        push_duration(&mut out, "tier-copy", self.tier_split.copy);
        push_duration(&mut out, "total", self.total());
        push_count(&mut out, "rows", self.batch_rows);
        push_count(&mut out, "cache-hits", self.cache_hits);
        push_count(&mut out, "cache-misses", self.cache_misses);
        push_count(&mut out, "tier-requests", self.tier_requests);
        if !self.via.is_empty() {
            let _ = write!(out, ", via;desc=\"{}\"", self.via);
        }
        out
    }

    /// Reads a header written by [`StageTimings::to_header`]. Unknown entries are ignored, as W3C asks; known entries
    /// must be well-formed.
    ///
    /// # Errors
    /// A known entry without a finite, non-negative value.
    pub fn parse_header(header: &str) -> Result<Self, BadTiming> {
        let mut timings = Self::default();
        for entry in header.split(',').map(str::trim) {
            let mut parts = entry.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let bad = || BadTiming(entry.to_owned());
            let mut value = |key: &str| {
                parts
                    .find_map(|part| part.strip_prefix(key)?.strip_prefix('='))
                    .map(|value| value.trim_matches('"'))
                    .ok_or_else(bad)
            };
            let time = |millis: &str| parse_duration(millis).ok_or_else(bad);
            let count = |count: &str| count.parse().map_err(|_| bad());
            if let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.as_str() == name) {
                timings.stages[stage as usize] = time(value("dur")?)?;
                continue;
            }
            match name {
                "tier-queue" => timings.tier_split.queue = time(value("dur")?)?,
                "tier-device" => timings.tier_split.device = time(value("dur")?)?,
                "tier-copy" => timings.tier_split.copy = time(value("dur")?)?,
                "rows" => timings.batch_rows = count(value("desc")?)?,
                "cache-hits" => timings.cache_hits = count(value("desc")?)?,
                "cache-misses" => timings.cache_misses = count(value("desc")?)?,
                "tier-requests" => timings.tier_requests = count(value("desc")?)?,
                "via" => timings.via = value("desc")?.parse().map_err(|_| bad())?,
                _ => {}
            }
        }
        Ok(timings)
    }
}

fn push_duration(out: &mut String, name: &str, time: Duration) {
    if !out.is_empty() {
        out.push_str(", ");
    }
    // Written by hand: the header has a dozen entries, and formatting would cost more than all else in it.
    let micros = micros::of(time);
    let thousandths = 1_000 + micros % 1_000;
    out.push_str(name);
    out.push_str(";dur=");
    out.push_str(itoa::Buffer::new().format(micros / 1_000));
    out.push('.');
    out.push_str(&itoa::Buffer::new().format(thousandths)[1..]);
}

fn push_count(out: &mut String, name: &str, count: u32) {
    out.push_str(", ");
    out.push_str(name);
    out.push_str(";desc=\"");
    out.push_str(itoa::Buffer::new().format(count));
    out.push('"');
}

fn parse_duration(millis: &str) -> Option<Duration> {
    let millis: f64 = millis.parse().ok()?;
    if !millis.is_finite() || millis < 0.0 {
        return None;
    }
    // Rounded to the microsecond that the header carries, and bounded, so that the sum over all stages fits a duration.
    Some(Duration::from_micros((millis * 1_000.0).round() as u64))
}

/// Invalid entry of a `Server-Timing` header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid or missing value in Server-Timing entry `{0}`")]
pub struct BadTiming(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::via::Via;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn header_reads_back(micros in prop::array::uniform8(0_u64..100_000_000), rows in 0_u32..5_000) {
            let mut timings = StageTimings::default();
            for (stage, micros) in Stage::ALL.into_iter().zip(micros) {
                timings.add(stage, Duration::from_micros(micros));
            }
            timings.batch_rows = rows;
            timings.via.insert(Via::Http);
            timings.tier_split.device = Duration::from_micros(micros[0]);
            prop_assert_eq!(StageTimings::parse_header(&timings.to_header()).unwrap(), timings);
        }

        #[test]
        fn any_text_is_read_or_refused(header in ".{0,200}") {
            let _ = StageTimings::parse_header(&header);
        }
    }

    #[test]
    fn unknown_entries_are_passed_over_and_bad_ones_refused() {
        let read = StageTimings::parse_header("cdn;desc=hit, infer;dur=1.5").unwrap();
        assert_eq!(read.get(Stage::Infer), Duration::from_micros(1_500));
        assert!(StageTimings::parse_header("infer;dur=soon").is_err());
        assert!(StageTimings::parse_header("infer").is_err());
        assert!(StageTimings::parse_header("infer;dur=-1").is_err());
        let huge = StageTimings::parse_header("infer;dur=1e22, batch;dur=1e22, encode;dur=1e308").unwrap();
        assert!(huge.total() > huge.get(Stage::Infer));
    }
}
