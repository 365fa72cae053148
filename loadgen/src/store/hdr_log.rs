//! `hdr/*.hdr`: the histograms of a repeat as an HdrHistogram interval log.
//!
//! In: the three clocks of a repeat, one histogram per time block. Out: a log in the format of HdrHistogram's
//! `HistogramLogWriter` (version 1.3, V2 histograms, deflated), one interval per block and clock, the clock in `Tag=`;
//! and back. Values are microseconds; the log's own maximum column is milliseconds. Knows nothing of points.

use super::ReportError;
use crate::record::{Factors, Histograms};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use std::path::Path;
use std::time::{Duration, SystemTime};

const CLOCKS: [&str; 3] = ["latency", "service", "lag"];

/// Name of the file of a repeat's histograms, relative to the run's folder: every factor is in it.
pub(crate) fn file_name(factors: &Factors, repeat: u32) -> String {
    let Factors {
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
    } = factors;
    let mix = mix.as_ref().map_or_else(String::new, |mix| format!("_of-{mix}"));
    let name = format!(
        "{tier}_{cache}-{cache_share}_{model}_{mode}-b{batch_size}_{arrivals}_{keys}{mix}_{offered_rps}rps_r{repeat}"
    );
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    format!("hdr/{}.hdr", name.chars().map(plain).collect::<String>())
}

/// The log's text. `started_at` is the start of the window, as in [`Repeat::started_at`].
///
/// [`Repeat::started_at`]: crate::record::Repeat::started_at
pub(crate) fn write(histograms: &Histograms, started_at: &str) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new();
    log.add_comment("[Histogram log format version 1.3]");
    log.add_comment("Tags: latency = scheduled send to last byte, service = actual send to last byte,");
    log.add_comment("lag = scheduled to actual send. Values in microseconds, Interval_Max in milliseconds.");
    log.with_max_value_divisor(1e3);
    if let Some(start) = parse_rfc3339(started_at) {
        log.with_start_time(start).with_base_time(start);
    }
    let mut writer = log
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| error.to_string())?;
    let block = Duration::try_from_secs_f64(histograms.block_s).map_err(|error| error.to_string())?;
    let blocks = histograms
        .latency
        .len()
        .max(histograms.service.len())
        .max(histograms.lag.len());
    let mut start = Duration::ZERO;
    for index in 0..blocks {
        for (tag, clock) in CLOCKS
            .iter()
            .zip([&histograms.latency, &histograms.service, &histograms.lag])
        {
            if let Some(histogram) = clock.get(index) {
                writer
                    .write_histogram(histogram, start, block, Tag::new(tag))
                    .map_err(|error| error.to_string())?;
            }
        }
        start += block;
    }
    Ok(text)
}

/// Reads a log back.
pub(crate) fn read(path: &Path, text: &[u8]) -> Result<Histograms, ReportError> {
    let mut histograms = Histograms::default();
    let mut deserializer = Deserializer::new();
    for (number, entry) in IntervalLogIterator::new(text).enumerate() {
        let bad = |what: String| ReportError::Entry {
            path: path.to_owned(),
            entry: number + 1,
            what,
        };
        let entry = entry.map_err(|error| bad(format!("{error:?}")))?;
        let LogEntry::Interval(interval) = entry else { continue };
        let bytes = STANDARD
            .decode(interval.encoded_histogram())
            .map_err(|error| bad(error.to_string()))?;
        let histogram: Histogram<u64> = deserializer
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| bad(error.to_string()))?;
        histograms.block_s = interval.duration().as_secs_f64();
        match interval.tag().as_ref().map(Tag::as_str) {
            Some("latency") => histograms.latency.push(histogram),
            Some("service") => histograms.service.push(histogram),
            Some("lag") => histograms.lag.push(histogram),
            tag => {
                return Err(bad(format!(
                    "an interval is tagged {tag:?}; expected latency, service or lag"
                )));
            }
        }
    }
    Ok(histograms)
}

/// `YYYY-MM-DDTHH:MM:SS[.fff]Z` as a time; `None` for anything else.
pub(crate) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute): (u64, u64) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    if !(1970..10_000).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return None;
    }
    // Days since 1970-01-01 of the proleptic Gregorian calendar, counting years from March so that leap days are last.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 1
            - 719_468;
    let seconds = u64::try_from(days).ok()? * 86_400 + hour * 3_600 + minute * 60;
    let fraction = Duration::try_from_secs_f64(second)
        .ok()
        .filter(|second| second.as_secs() < 61)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + fraction)
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
            };
            let text = write(&histograms, "2026-11-20T23:58:00.250Z").unwrap();
            let read = read(Path::new("x.hdr"), &text).unwrap();
            prop_assert_eq!(read.block_s, 0.5);
            prop_assert_eq!(read.latency, histograms.latency);
            prop_assert_eq!(read.service, histograms.service);
            prop_assert_eq!(read.lag, histograms.lag);
        }

        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = super::read(Path::new("x.hdr"), &text);
        }
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

    #[test]
    fn times_of_the_calendar() {
        let seconds =
            |text| parse_rfc3339(text).map(|t| t.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("2000-02-29T12:30:15.5Z"), Some(951_827_415.5));
        assert_eq!(seconds("2026-11-20T23:58:00Z"), Some(1_795_219_080.0));
        for bad in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+01:00",
        ] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
