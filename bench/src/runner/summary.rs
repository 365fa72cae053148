//! Summaries of points, by the methods of tierlab-analysis. In: entries of a run. Out: each point with intervals,
//! verdict and peers. Pure.

use super::record::{Entry, MeasuredRepeat};
use crate::drive::Sums;
use crate::machine::Traffic;
use crate::peers::PeerFigures;
use crate::plan::{CacheState, Point};
use crate::rounds::{geometric_mean, mean};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tierlab_analysis::latency_interval;
use tierlab_analysis::record::{Drift, DriftHow, Interval, Repeat, counted, samples_needed};
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_analysis::validity::stationarity::drifts;
use tierlab_instrument::units::latency;

/// Maximum share of due calls that do not end in an open loop's window; with more, a queue may grow, and the point is saturated.
const MAX_MISSING_SHARE: f64 = 0.05;

/// Minimum share of a cold repeat's bytes fetched from storage.
const MIN_FETCHED_SHARE: f64 = 0.95;

/// The same of direct reads, in any of the repeats: calls across the ends of a window blur the share of one.
const MIN_DIRECT_SHARE: f64 = 0.5;

/// Maximum share of a warm repeat's bytes fetched from storage.
const MAX_WARM_SHARE: f64 = 0.05;

/// Verdict on a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Measured as planned.
    Valid,
    /// The latency changed during the run, so that it has no percentile.
    Drifts(String),
    /// The tier could not keep up with the offered rate.
    Saturated,
    /// The instrument or the machine failed: the point is no evidence about the tier.
    Unknown(String),
    /// Accesses failed.
    Failed(String),
}

impl Verdict {
    /// Name in reports, without the reason.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Drifts(_) => "drifts",
            Self::Saturated => "saturated",
            Self::Unknown(_) => "unknown",
            Self::Failed(_) => "failed",
        }
    }
}

/// Point with its figures. Intervals cover 95 % over the repeats; those of a single repeat are open.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    #[serde(flatten)]
    pub(crate) point: Point,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) repeats: usize,
    /// Number of disturbed repeats that are left out.
    pub(crate) left_out: usize,
    pub(crate) calls: u64,
    pub(crate) iops: Interval,
    pub(crate) mb_per_s: Interval,
    /// Seconds from the first call to the end of the last, for a checkpoint and its restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) took_s: Option<Interval>,
    /// Latency percentile; `None` with fewer than 10 calls beyond it.
    pub(crate) p50_us: Option<Interval>,
    pub(crate) p95_us: Option<Interval>,
    pub(crate) p99_us: Option<Interval>,
    pub(crate) p999_us: Option<Interval>,
    pub(crate) late_p99_us: Option<f64>,
    /// CPU seconds of the bench's own process per GB; `None` if no bytes are moved.
    pub(crate) cpu_s_per_gb: Option<Interval>,
    /// CPU time of the bench's own process per call, in microseconds.
    pub(crate) cpu_us_per_call: Interval,
    /// Bytes moved by the tier per requested byte.
    pub(crate) over_read: Option<f64>,
    /// Bytes that the kernel fetched from storage for this process, per requested byte.
    pub(crate) fetched_share: Option<f64>,
    pub(crate) requests_per_call: Option<f64>,
    pub(crate) retries: u64,
    pub(crate) unfinished: u64,
    pub(crate) via: BTreeSet<String>,
    /// Counters of the disk over the repeats, with the traffic of all processes.
    pub(crate) disk: Option<Traffic>,
    pub(crate) nfs: Option<Traffic>,
    /// Share of the best MB/s of the tier's points and their peers.
    pub(crate) share_of_best_mb: f64,
    pub(crate) peers: BTreeMap<String, Peer>,
    /// Drifts of the latency, in words.
    pub(crate) drift: Vec<String>,
    /// Errors of other tools, one for each repeat in which one failed.
    pub(crate) peer_faults: Vec<String>,
}

/// Figures of another tool for a point.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Peer {
    pub(crate) command: String,
    pub(crate) iops: Interval,
    pub(crate) mb_per_s: Interval,
    /// Median latency, as a mean over the repeats.
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// CPU time per call, in microseconds, as a mean over the repeats.
    pub(crate) cpu_us_per_call: Option<f64>,
    /// Ratio of our rate to the tool's, over the repeats.
    pub(crate) ratio: Interval,
}

/// Returns every point that has an entry, in order.
pub(crate) fn summaries(entries: &[Entry]) -> Vec<Summary> {
    let mut by_point: BTreeMap<&Point, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        by_point.entry(&entry.point).or_default().push(entry);
    }
    let all = by_point.into_iter().map(|(point, entries)| summary(point, &entries));
    let mut all: Vec<Summary> = all.collect();
    // Points are sorted by tier.
    for of_tier in all.chunk_by_mut(|a, b| a.point.tier == b.point.tier) {
        let rates = of_tier.iter().flat_map(|one| {
            let peers = one.peers.values().map(|peer| peer.mb_per_s.value);
            peers.chain([one.mb_per_s.value])
        });
        let best = rates.fold(f64::MIN_POSITIVE, f64::max);
        of_tier
            .iter_mut()
            .for_each(|one| one.share_of_best_mb = one.mb_per_s.value / best);
    }
    all
}

/// Measured repeat, with the record for the analysis.
struct Measurement<'a> {
    measured: &'a MeasuredRepeat,
    peers: &'a BTreeMap<String, PeerFigures>,
    repeat: Repeat,
}

fn summary(point: &Point, entries: &[&Entry]) -> Summary {
    let all: Vec<Measurement<'_>> = entries.iter().filter_map(|entry| measurement(entry)).collect();
    let repeats: Vec<Repeat> = all.iter().map(|one| one.repeat.clone()).collect();
    let repeats = counted(&repeats);
    let drift: Vec<String> = drifts(&repeats).iter().map(drift_text).collect();
    let used: BTreeSet<u32> = repeats.iter().map(|repeat| repeat.index).collect();
    let used: Vec<&Measurement<'_>> = all.iter().filter(|one| used.contains(&one.repeat.index)).collect();
    let each = |of: fn(&MeasuredRepeat) -> f64| mean(used.iter().map(|one| of(one.measured)));
    // A repeat without calls has no costs of a call.
    let with_calls = used.iter().map(|one| one.measured).filter(|m| m.sums.ended > 0);
    let cpu_us_per = |of: fn(&Sums) -> f64| mean(with_calls.clone().map(|m| m.machine.own_cpu_s * 1e6 / of(&m.sums)));
    let sum = |of: fn(&MeasuredRepeat) -> u64| used.iter().map(|one| of(one.measured)).sum::<u64>();
    let per = |value: u64, of: u64| value as f64 / of.max(1) as f64;
    let machines = || used.iter().map(|one| &one.measured.machine);
    let fetched: Option<u64> = machines().map(|machine| machine.fetched_bytes).sum();
    let moves_bytes = point.operation.moves_bytes();
    let fetched = fetched.filter(|_| moves_bytes);
    let table = BlockTable::new(used.iter().map(|one| one.repeat.histograms.latency.as_slice()));
    let percentile = |quantile: f64| {
        let is_printed = table.samples() >= samples_needed(quantile);
        let ns = is_printed.then(|| latency_interval(&table, quantile)).flatten();
        ns.map(|ns| ns.map(|ns| ns / 1e3))
    };
    let via = used.iter().map(|one| one.measured.via.clone());
    let requests = sum(|m| m.sums.requests);
    let calls = sum(|m| m.sums.calls);
    Summary {
        verdict: verdict(point, entries, &used, &drift),
        repeats: all.len(),
        left_out: all.len() - used.len(),
        calls,
        iops: each(|m| m.sums.ended as f64 / m.window_s),
        mb_per_s: each(|m| m.sums.ended_bytes as f64 / 1e6 / m.window_s),
        took_s: point.operation.is_once().then(|| each(|m| m.window_s)),
        p50_us: percentile(0.5),
        p95_us: percentile(0.95),
        p99_us: percentile(0.99),
        p999_us: percentile(0.999),
        late_p99_us: used.iter().filter_map(|one| one.measured.late_p99_us).reduce(f64::max),
        cpu_s_per_gb: (moves_bytes && with_calls.clone().next().is_some())
            .then(|| cpu_us_per(|sums| sums.ended_bytes as f64 / 1e3)),
        cpu_us_per_call: cpu_us_per(|sums| sums.ended as f64),
        over_read: (requests > 0).then(|| per(sum(|m| m.sums.wire_bytes), sum(|m| m.sums.asked_bytes))),
        fetched_share: fetched.map(|bytes| per(bytes, sum(|m| m.sums.ended_bytes))),
        requests_per_call: (requests > 0).then(|| per(requests, calls)),
        retries: sum(|m| m.sums.retries),
        unfinished: sum(|m| m.sums.unfinished),
        via: via.filter(|via| !via.is_empty()).collect(),
        disk: machines().filter_map(|machine| machine.disk).reduce(Traffic::plus),
        nfs: machines().filter_map(|machine| machine.nfs).reduce(Traffic::plus),
        share_of_best_mb: 0.0,
        peers: peers(&used),
        drift,
        peer_faults: entries.iter().flat_map(|entry| entry.peer_faults.clone()).collect(),
        point: point.clone(),
    }
}

fn measurement(entry: &Entry) -> Option<Measurement<'_>> {
    let measured = entry.measured.as_ref()?;
    let mut repeat = Repeat {
        index: entry.repeat,
        window_s: measured.window_s,
        disturbed: measured.disturbed.clone(),
        ..Repeat::empty()
    };
    // Nanoseconds: the analysis accepts any unit, and a read from a memory map takes less than a microsecond.
    repeat.histograms.latency = vec![measured.latencies().ok()?];
    Some(Measurement {
        measured,
        peers: &entry.peers,
        repeat,
    })
}

fn verdict(point: &Point, entries: &[&Entry], used: &[&Measurement<'_>], drift: &[String]) -> Verdict {
    if let Some(why) = entries.iter().find_map(|entry| entry.failed.clone()) {
        return Verdict::Failed(why);
    }
    let due = |one: &&Measurement<'_>| one.measured.sums.calls + one.measured.sums.unfinished;
    if used.iter().map(due).sum::<u64>() == 0 {
        return Verdict::Unknown("no call ended within a repeat: raise `seconds`".to_owned());
    }
    if let Some(why) = used.iter().find_map(|one| one.measured.disturbed.clone()) {
        return Verdict::Unknown(why);
    }
    // Bytes that the kernel fetched from storage in a repeat, per byte read.
    let share = |one: &&Measurement<'_>| {
        let sums = one.measured.sums;
        let fetched = one.measured.machine.fetched_bytes? as f64;
        let read = sums.ended_bytes as f64 * (1.0 - sums.writes as f64 / sums.calls.max(1) as f64);
        (read > 0.0).then_some(fetched / read)
    };
    let shares = Vec::from_iter(used.iter().filter_map(share).filter(|_| point.operation.reads()));
    let least = shares.iter().copied().reduce(f64::min).unwrap_or(1.0);
    let most = shares.iter().copied().reduce(f64::max);
    let not_cold = |share: f64| {
        format!(
            "not cold: in a repeat only {:.0} % of the bytes were fetched from storage, the rest came from memory; use a --scratch on a \
            disk; if it is `cold`, raise `size` or lower `seconds`",
            share * 100.0
        )
    };
    let problem = match (point.cache, most) {
        (CacheState::Cold, _) if least < MIN_FETCHED_SHARE => Some(not_cold(least)),
        (CacheState::Bypassed, Some(most)) if most < MIN_DIRECT_SHARE => Some(not_cold(most)),
        (CacheState::Warm, Some(most)) if most > MAX_WARM_SHARE => Some(format!(
            "not warm: in a repeat {:.0} % of the bytes were fetched from storage; lower `size` so that the data fits into memory",
            most * 100.0
        )),
        _ => None,
    };
    if let Some(problem) = problem {
        return Verdict::Unknown(problem);
    }
    let is_behind = |one: &&&Measurement<'_>| {
        let (sums, latency) = (one.measured.sums, &one.repeat.histograms.latency[0]);
        let missing = 1.0 - sums.ended as f64 / sums.calls.max(1) as f64;
        // In a growing queue the wait grows by that share of the window. Otherwise calls are missing because each takes long after a
        // short warm-up, or because few are due.
        let grown_s = (latency.value_at_quantile(0.9) - latency.value_at_quantile(0.1)) as f64 / 1e9;
        sums.unfinished > 0 || (missing > MAX_MISSING_SHARE && 2.0 * grown_s > missing * one.measured.window_s)
    };
    match point.rate > 0 && used.iter().filter(is_behind).count() * 2 > used.len() {
        true => Verdict::Saturated,
        false if drift.is_empty() => Verdict::Valid,
        false => Verdict::Drifts(drift.join(", ")),
    }
}

fn peers(used: &[&Measurement<'_>]) -> BTreeMap<String, Peer> {
    // A repeat without calls has no ratio.
    let used = Vec::from_iter(used.iter().filter(|one| one.measured.sums.ended > 0));
    let tools: BTreeSet<&String> = used.iter().flat_map(|one| one.peers.keys()).collect();
    let peer = |tool: &String| {
        let pairs = used.iter().filter_map(|one| Some((one.measured, one.peers.get(tool)?)));
        let pairs: Vec<(&MeasuredRepeat, &PeerFigures)> = pairs.collect();
        let each = |of: fn(&PeerFigures) -> f64| mean(pairs.iter().map(|(_, figures)| of(figures)));
        let some = |of: fn(&PeerFigures) -> Option<f64>| {
            let values: Vec<f64> = pairs.iter().filter_map(|(_, figures)| of(figures)).collect();
            (!values.is_empty()).then(|| mean(values).value)
        };
        let ratio = |(own, of): &(&MeasuredRepeat, &PeerFigures)| own.sums.ended as f64 / own.window_s / of.iops;
        Peer {
            command: pairs[0].1.command.clone(),
            iops: each(|figures| figures.iops),
            mb_per_s: each(|figures| figures.mb_per_s),
            p50_us: some(|figures| figures.p50_us),
            p99_us: some(|figures| figures.p99_us),
            cpu_us_per_call: some(|figures| figures.cpu_us_per_call),
            ratio: geometric_mean(pairs.iter().map(ratio)),
        }
    };
    tools.into_iter().map(|tool| (tool.clone(), peer(tool))).collect()
}

/// Describes a drift in nanoseconds, which the analysis treats as microseconds.
fn drift_text(drift: &Drift) -> String {
    let when = match drift.how {
        DriftHow::Within => "within every repeat".to_owned(),
        DriftHow::Across => "from the first repeat to the last".to_owned(),
        DriftHow::After(count) => format!("after repeat {count}"),
    };
    let [from, to] = [drift.from_us, drift.to_us].map(|ns| latency(ns / 1e3));
    format!("{} moved from {from} to {to} {when}", drift.of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Operation;
    use crate::runner::record::encode;

    #[test]
    fn a_rate_of_which_only_calls_of_the_warm_up_ended_is_too_high() {
        let verdict = |unfinished: u64| {
            let mut latencies = hdrhistogram::Histogram::new(3).unwrap();
            latencies.record_n(2_000_000_000, unfinished.max(1)).unwrap();
            let measured = serde_json::json!({
                "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": 0, "ended": 500, "writes": 0, "asked_bytes": 0,
                "ended_bytes": 2_048_000, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": unfinished, "via": "",
                "machine": {"own_cpu_s": 0.1}
            });
            let point = Point {
                rate: 1_000_000,
                ..Point::reads("disk", 4096)
            };
            let entry = Entry {
                measured: serde_json::from_value(measured).unwrap(),
                ..Entry::new(&point, 0)
            };
            summaries(&[entry]).remove(0).verdict
        };
        assert_eq!(verdict(900_000), Verdict::Saturated);
        assert!(matches!(verdict(0), Verdict::Unknown(_)));
    }

    #[test]
    fn calls_that_end_after_the_window_are_no_growing_queue_unless_they_wait_longer_and_longer() {
        let verdict = |latencies_ms: std::ops::Range<u64>, ended: u64| {
            let mut latencies = hdrhistogram::Histogram::new(3).unwrap();
            let calls = latencies_ms.end - latencies_ms.start;
            latencies_ms.for_each(|ms| latencies.record(ms * 1_000_000).unwrap());
            let measured = serde_json::json!({
                "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": calls, "ended": ended, "writes": 0,
                "asked_bytes": calls * 4096, "ended_bytes": ended * 4096, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": 0,
                "via": "", "machine": {"own_cpu_s": 0.1}
            });
            let point = Point {
                rate: calls as u32,
                ..Point::reads("bucket", 4096)
            };
            let entry = Entry {
                measured: serde_json::from_value(measured).unwrap(),
                ..Entry::new(&point, 0)
            };
            summaries(&[entry]).remove(0).verdict
        };
        // Without a warm-up, a tenth of 50 calls of about 100 ms ends after the window; of four calls, one by chance.
        assert_eq!(verdict(75..125, 45), Verdict::Valid);
        assert_eq!(verdict(1..5, 3), Verdict::Valid);
        // A tier that serves 900 calls of 1,000 in a second: the last one waits for 111 ms.
        assert_eq!(verdict(1..112, 100), Verdict::Saturated);
    }

    #[test]
    fn a_point_that_drifts_is_not_valid_and_repeats_that_are_left_out_do_not_drift() {
        let summary = |disturbed: Option<&str>| {
            let entry = |repeat: u32| {
                // The last four of 12 repeats are four times as slow.
                let is_slow = repeat >= 8;
                let ns = if is_slow { 4000 } else { 1000 };
                let mut latencies = hdrhistogram::Histogram::new(3).unwrap();
                latencies.record_n(ns + u64::from(repeat % 3) * 10, 1000).unwrap();
                let measured = serde_json::json!({
                    "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": 1000, "ended": 1000, "writes": 0,
                    "asked_bytes": 4_096_000, "ended_bytes": 4_096_000, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": 0,
                    "via": "", "machine": {"own_cpu_s": 0.1}, "disturbed": disturbed.filter(|_| is_slow)
                });
                Entry {
                    measured: serde_json::from_value(measured).unwrap(),
                    ..Entry::new(&Point::reads("disk", 4096), repeat)
                }
            };
            summaries(&Vec::from_iter((0..12).map(entry))).remove(0)
        };
        let drifting = summary(None);
        assert!(
            matches!(&drifting.verdict, Verdict::Drifts(why) if why.contains("p50 moved from 1.01 µs to 4.0")),
            "{:?}",
            drifting.verdict
        );
        assert_eq!(drifting.verdict.name(), "drifts");
        let steady = summary(Some("foreign processes used 47 % of the CPUs"));
        assert_eq!((&steady.verdict, steady.left_out), (&Verdict::Valid, 4));
        assert!(steady.drift.is_empty(), "{:?}", steady.drift);
    }

    #[test]
    fn a_repeat_without_calls_has_no_cpu_time_of_a_call_and_no_ratio_to_a_peer() {
        let summary = |calls: &[u64]| {
            let entry = |(repeat, calls): (u32, &u64)| {
                let mut latencies = hdrhistogram::Histogram::new(3).unwrap();
                latencies.record_n(1000, *calls).unwrap();
                let measured = serde_json::json!({
                    "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": calls, "ended": calls, "writes": 0,
                    "asked_bytes": calls * 1000, "ended_bytes": calls * 1000, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": 0,
                    "via": "", "machine": {"own_cpu_s": 0.001}
                });
                let fio = PeerFigures {
                    iops: 20.0,
                    ..PeerFigures::default()
                };
                Entry {
                    measured: serde_json::from_value(measured).unwrap(),
                    peers: BTreeMap::from([("fio".to_owned(), fio)]),
                    ..Entry::new(&Point::reads("disk", 1000), repeat)
                }
            };
            let entries: Vec<Entry> = (0..).zip(calls).map(entry).collect();
            summaries(&entries).remove(0)
        };
        // A millisecond for 10 calls of 1,000 bytes.
        let both = summary(&[0, 10]);
        let per_gb = both.cpu_s_per_gb.unwrap().value;
        assert!(
            (per_gb - 100.0).abs() < 1e-6 && (both.cpu_us_per_call.value - 100.0).abs() < 1e-6,
            "{both:?}"
        );
        let ratio = both.peers["fio"].ratio.value;
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
        let none = summary(&[0]);
        assert!(none.cpu_s_per_gb.is_none() && none.peers.is_empty());
    }

    #[test]
    fn a_cold_point_that_was_read_from_memory_says_nothing() {
        let mut latencies = hdrhistogram::Histogram::new(3).unwrap();
        latencies.record_n(1000, 100).unwrap();
        let verdict = |operation: Operation, cache, fetched: &[u64]| {
            let writes = if operation == Operation::Mixed { 30 } else { 0 };
            let entry = |(repeat, fetched): (u32, &u64)| {
                let measured = serde_json::json!({
                    "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": 100, "ended": 100, "writes": writes,
                    "asked_bytes": 409_600, "ended_bytes": 409_600, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": 0, "via": "",
                    "machine": {"own_cpu_s": 0.1, "fetched_bytes": fetched}
                });
                let point = Point {
                    operation,
                    cache,
                    ..Point::reads("disk", 4096)
                };
                Entry {
                    measured: serde_json::from_value(measured).unwrap(),
                    ..Entry::new(&point, repeat)
                }
            };
            let entries: Vec<Entry> = (0..).zip(fetched).map(entry).collect();
            summaries(&entries).remove(0).verdict
        };
        assert_eq!(verdict(Operation::Read, CacheState::Cold, &[409_600]), Verdict::Valid);
        assert_eq!(verdict(Operation::Read, CacheState::Warm, &[0]), Verdict::Valid);
        // Data that does not fit into memory.
        let cooled = verdict(Operation::Read, CacheState::Warm, &[0, 40_960]);
        assert!(
            matches!(&cooled, Verdict::Unknown(why) if why.starts_with("not warm: in a repeat 10 %")),
            "{cooled:?}"
        );
        // Direct reads of a file system in memory.
        let direct = verdict(Operation::Read, CacheState::Bypassed, &[0, 0]);
        assert!(
            matches!(&direct, Verdict::Unknown(why) if why.contains("only 0 %") && why.contains("--scratch")),
            "{direct:?}"
        );
        let blurred = verdict(Operation::Read, CacheState::Bypassed, &[200_000, 409_600]);
        assert_eq!(blurred, Verdict::Valid);
        assert_eq!(verdict(Operation::Write, CacheState::Bypassed, &[0]), Verdict::Valid);
        // Mixed accesses fetch only the bytes that they read.
        assert_eq!(verdict(Operation::Mixed, CacheState::Cold, &[286_720]), Verdict::Valid);
        let mixed = verdict(Operation::Mixed, CacheState::Cold, &[143_360]);
        assert!(
            matches!(&mixed, Verdict::Unknown(why) if why.contains("only 50 %")),
            "{mixed:?}"
        );
        assert_eq!(verdict(Operation::Write, CacheState::Cold, &[0]), Verdict::Valid);
        // Read-ahead of one repeat does not make another one cold.
        let Verdict::Unknown(why) = verdict(Operation::Read, CacheState::Cold, &[204_800, 4_096_000]) else {
            panic!("half of it came from memory");
        };
        assert!(
            why.contains("not cold: in a repeat only 50 %") && why.contains("`size`"),
            "{why}"
        );
    }
}
