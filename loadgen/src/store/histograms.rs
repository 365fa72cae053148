//! `hdr/*.hdr` in a run's folder: the histograms of a repeat as an HdrHistogram interval log.
//!
//! In: the clocks of a repeat, one histogram per time block. Out: a log in the format of HdrHistogram's
//! `HistogramLogWriter` (version 1.3, V2 histograms, deflated), one interval per block and clock, the clock in `Tag=`;
//! and back. Values are microseconds; the log's own maximum column is milliseconds. Knows nothing of points.

use super::files::write_atomically;
use super::time::parse_rfc3339;
use crate::error::StoreError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tierlab_analysis::record::{Factors, Histograms, Repeat, StreamFigure};

/// Maximum length of the name's stem: file names may have 255 bytes, and other names extend this one.
const MOST_STEM: usize = 200;

/// Returns the name of the file of a repeat's histograms, relative to the run's folder, for [`Repeat::hdr_file`]; it contains every
/// factor.
pub fn hdr_file(factors: &Factors, repeat: u32) -> String {
    let Factors {
        variant,
        tier,
        cache,
        cache_share,
        model,
        mode,
        batch_size,
        offered_rps,
        arrivals,
        keys,
        mix,
        driven,
    } = factors;
    let variant = match variant.as_str() {
        "" => String::new(),
        variant => format!("{variant}_"),
    };
    let mix = mix.as_ref().map_or_else(String::new, |mix| format!("_of-{mix}"));
    let driven = driven.as_ref().map_or_else(String::new, |driven| format!("_{driven}"));
    let name = format!(
        "{variant}{tier}_{cache}-{cache_share}_{model}_{mode}-b{batch_size}_{arrivals}_{keys}{mix}{driven}_{offered_rps}rps_r{repeat}"
    );
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let mut stem = name.replace(|c| !is_plain(c), "-");
    if stem.len() > MOST_STEM {
        // The end distinguishes points; a checksum replaces the rest.
        let sum = hex::encode(&Sha256::digest(name.as_bytes())[..8]);
        let end = stem.split_off(stem.len() - MOST_STEM / 2);
        stem.truncate(MOST_STEM - end.len() - sum.len());
        stem = format!("{stem}{sum}{end}");
    }
    format!("hdr/{stem}.hdr")
}

/// Returns the name for a repeat after earlier unanswered attempts; each attempt has a file of its own.
pub fn hdr_file_of(factors: &Factors, repeat: u32, attempt: u32) -> String {
    let name = hdr_file(factors, repeat);
    match (attempt, name.strip_suffix(".hdr")) {
        (0, _) | (_, None) => name,
        (attempt, Some(stem)) => format!("{stem}_again{attempt}.hdr"),
    }
}

/// Returns the path of a repeat's histograms. A run may come from anywhere, so its paths must stay inside its folder.
pub(super) fn hdr_path(dir: &Path, repeat: &Repeat) -> Result<PathBuf, StoreError> {
    let name = Path::new(&repeat.hdr_file);
    let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || repeat.hdr_file.is_empty() {
        return Err(StoreError::HdrFile(repeat.hdr_file.clone()));
    }
    Ok(dir.join(name))
}

/// Writes the histograms of a repeat.
pub(super) fn write_histograms(dir: &Path, repeat: &Repeat) -> Result<(), StoreError> {
    let path = hdr_path(dir, repeat)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(StoreError::io(parent))?;
    }
    let text = write(&repeat.histograms, &repeat.started_at).map_err(|problem| StoreError::Entry {
        path: path.clone(),
        entry: 0,
        problem: problem.to_string(),
    })?;
    write_atomically(&path, &text)
}

/// Reads the histograms of a repeat back.
pub(super) fn read_histograms(path: &Path) -> Result<Histograms, StoreError> {
    read(path, &fs::read(path).map_err(StoreError::io(path))?)
}

/// Returns the log's text. `started_at` is the start of the window, as in [`Repeat::started_at`].
fn write(histograms: &Histograms, started_at: &str) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new();
    log.add_comment("[Histogram log format version 1.3]");
    log.add_comment("Tags: latency = scheduled send to last byte, service = actual send to last byte (good replies),");
    log.add_comment("lag = scheduled to actual send (all requests), failed = ages of failed requests.");
    log.add_comment("Values in microseconds, Interval_Max in milliseconds.");
    if !histograms.streams.is_empty() {
        log.add_comment(
            "Streams: first_byte and ttft from the scheduled send, gap between events; events, bytes and tokens are",
        );
        log.add_comment("counts of a request.");
    }
    log.with_max_value_divisor(1e3);
    if let Some(start) = parse_rfc3339(started_at) {
        log.with_start_time(start).with_base_time(start);
    }
    let mut writer = log.begin_log_with(&mut text, &mut serializer)?;
    let block = Duration::try_from_secs_f64(histograms.block_s)?;
    let mut clocks = vec![
        ("latency", &histograms.latency),
        ("service", &histograms.service),
        ("lag", &histograms.lag),
        ("failed", &histograms.failed),
    ];
    let streams = histograms.streams.iter();
    clocks.extend(streams.map(|(figure, blocks)| (figure.name(), blocks)));
    let blocks = clocks.iter().map(|(_, clock)| clock.len()).max().unwrap_or(0);
    let mut start = Duration::ZERO;
    for index in 0..blocks {
        for (tag, clock) in &clocks {
            if let Some(histogram) = clock.get(index) {
                writer.write_histogram(histogram, start, block, Tag::new(tag))?;
            }
        }
        start += block;
    }
    Ok(text)
}

/// Reads a log back.
fn read(path: &Path, text: &[u8]) -> Result<Histograms, StoreError> {
    let mut histograms = Histograms::default();
    let mut deserializer = Deserializer::new();
    for (number, entry) in IntervalLogIterator::new(text).enumerate() {
        let bad = |problem: String| StoreError::Entry {
            path: path.to_owned(),
            entry: number + 1,
            problem,
        };
        let entry = entry.map_err(|error| bad(format!("{error:?}")))?;
        let LogEntry::Interval(interval) = entry else { continue };
        let bytes = STANDARD.decode(interval.encoded_histogram());
        let bytes = bytes.map_err(|error| bad(error.to_string()))?;
        let histogram = deserializer.deserialize(&mut bytes.as_slice());
        let histogram: Histogram<u64> = histogram.map_err(|error| bad(error.to_string()))?;
        histograms.block_s = interval.duration().as_secs_f64();
        match interval.tag().as_ref().map(Tag::as_str) {
            Some("latency") => histograms.latency.push(histogram),
            Some("service") => histograms.service.push(histogram),
            Some("lag") => histograms.lag.push(histogram),
            Some("failed") => histograms.failed.push(histogram),
            tag => match tag.and_then(StreamFigure::named) {
                Some(figure) => histograms.streams.entry(figure).or_default().push(histogram),
                None => {
                    return Err(bad(format!(
                        "an interval is tagged {tag:?}; expected latency, service, lag, failed or a figure of streams"
                    )));
                }
            },
        }
    }
    Ok(histograms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(values: &[Vec<u64>]) -> Vec<Histogram<u64>> {
        values
            .iter()
            .map(|values| {
                let mut histogram = Histogram::new_with_bounds(1, 60_000_000, 3).unwrap();
                values.iter().for_each(|&value| histogram.saturating_record(value));
                histogram
            })
            .collect()
    }

    proptest! {
        #[test]
        fn logs_read_back(
            latency in prop::collection::vec(prop::collection::vec(0_u64..60_000_000, 0..40), 1..5),
            shift in 0_u64..1_000,
        ) {
            let shifted: Vec<Vec<u64>> =
                latency.iter().map(|block| block.iter().map(|us| us.saturating_sub(shift)).collect()).collect();
            let histograms = Histograms {
                block_s: 0.5,
                latency: blocks(&latency),
                service: blocks(&shifted),
                lag: blocks(&vec![vec![shift]; latency.len()]),
                failed: if shift % 2 == 0 { Vec::new() } else { blocks(&shifted) },
                streams: StreamFigure::ALL
                    .into_iter()
                    .take(shift as usize % 7)
                    .map(|figure| (figure, blocks(&shifted)))
                    .collect(),
            };
            let text = write(&histograms, "2026-11-20T23:58:00.250Z").unwrap();
            let read = read(Path::new("x.hdr"), &text).unwrap();
            prop_assert_eq!(read.block_s, 0.5);
            prop_assert_eq!(read.latency, histograms.latency);
            prop_assert_eq!(read.service, histograms.service);
            prop_assert_eq!(read.lag, histograms.lag);
            prop_assert_eq!(read.failed, histograms.failed);
            prop_assert_eq!(read.streams, histograms.streams);
        }

        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = super::read(Path::new("x.hdr"), &text);
        }
    }

    #[test]
    fn long_names_make_names_of_files_still_and_each_its_own() {
        let named = |variant: String, offered_rps: f64| Factors {
            variant,
            tier: "t".repeat(128),
            cache: "cold".into(),
            cache_share: 0.0,
            model: "m".repeat(128),
            mode: tierlab_analysis::record::Mode::Realtime,
            batch_size: 1,
            offered_rps,
            arrivals: "poisson".into(),
            keys: "uniform".into(),
            mix: None,
            driven: None,
        };
        let names = [("a", 10.0), ("b", 10.0), ("a", 20.0)].map(|(variant, rps)| {
            let name = hdr_file(&named(variant.repeat(100), rps), 3);
            assert!(name.len() <= 220 && name.ends_with("rps_r3.hdr"), "{name}");
            name
        });
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let histograms = Histograms {
            block_s: 1.0,
            latency: blocks(&[vec![5, 7]]),
            ..Histograms::default()
        };
        let text = String::from_utf8(write(&histograms, "").unwrap()).unwrap();
        assert!(text.contains("Tag=latency,0.000,1.000,0.007,"), "{text}");
        let error = read(Path::new("a.hdr"), text.replace("Tag=latency", "Tag=laency").as_bytes()).unwrap_err();
        assert!(
            error.to_string().contains("a.hdr") && error.to_string().contains("laency"),
            "{error}"
        );
        let cut = &text[..text.len() - 12];
        assert!(read(Path::new("a.hdr"), cut.as_bytes()).is_err());
    }
}
