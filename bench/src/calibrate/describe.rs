//! Profile from measurements, and its text. In: counts and histograms. Out: quantiles, rates, limits, errors and drift; the text for the end
//! of `calibrate`. Pure.

use super::measure::{CalibrationResults, Cell};
use crate::report::or_none;
use crate::rounds::geometric_mean;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tierlab_analysis::record::samples_needed;
use tierlab_instrument::units::{amount, bytes, latency, thousands};
use tierlab_report::parts::{Table, text_table, wrapped};
use tierlab_storage::wrappers::emulated::{
    InjectedError, Recorded, RecordedLimits, RecordedOrigin, RecordedPoint, RecordedRound, SCHEMA,
};

/// Ratio of rates at successive depths below which a limit is reached.
const MIN_DEPTH_GAIN: f64 = 1.1;
/// Minimum ratio of latencies of two read sizes from which a rate is derived.
const MIN_LATENCY_RATIO: f64 = 1.05;

/// Shares of the quantiles: every hundredth, and finer in both tails.
fn shares() -> Vec<f64> {
    let low = [0.001, 0.002, 0.005];
    let high = [0.992, 0.994, 0.995, 0.996, 0.998, 0.999, 0.9995, 0.9999];
    let mut shares: Vec<f64> = (0..=100).map(|hundredth| f64::from(hundredth) / 100.0).collect();
    shares.extend(low.into_iter().chain(high));
    shares.sort_by(f64::total_cmp);
    shares
}

/// Builds the profile.
pub(super) fn profile(origin: RecordedOrigin, measured: &CalibrationResults) -> Recorded {
    let shares = shares();
    Recorded {
        schema: SCHEMA,
        points: measured.cells.iter().map(|cell| point(cell, &shares)).collect(),
        shares,
        origin,
        limits: limits(&measured.cells),
        errors: errors(&measured.cells),
        rounds: rounds(measured),
    }
}

fn point(cell: &Cell, shares: &[f64]) -> RecordedPoint {
    let at = |share: &f64| match *share {
        share if share <= 0.0 => cell.tally.latency_ns.min(),
        share if share >= 1.0 => cell.tally.latency_ns.max(),
        share => cell.tally.latency_ns.value_at_quantile(share),
    };
    let mut before = 0;
    // The histogram reports its ends and its middle with different resolution.
    let ascending = |ns: u64| {
        before = ns.max(before);
        (before as f64 / 10.0).round() / 100.0
    };
    RecordedPoint {
        bytes: cell.bytes,
        depth: cell.depth,
        calls: cell.calls(),
        calls_per_s: (rate(cell) * 10.0).round() / 10.0,
        latency_us: shares.iter().map(at).map(ascending).collect(),
    }
}

fn rate(cell: &Cell) -> f64 {
    cell.calls() as f64 / cell.window_s.max(1e-9)
}

fn limits(cells: &[Cell]) -> RecordedLimits {
    let max = |of: &dyn Fn(&Cell) -> f64| cells.iter().map(of).fold(0.0, f64::max) as u64;
    let sizes = || cells.iter().map(|cell| cell.bytes);
    RecordedLimits {
        connection_bytes_per_s: connection(cells),
        total_bytes_per_s: max(&|cell| rate(cell) * cell.bytes as f64),
        total_is_limit: sizes().max().is_some_and(|bytes| at_limit(cells, bytes)),
        requests_per_s: max(&rate),
        requests_is_limit: sizes().min().is_some_and(|bytes| at_limit(cells, bytes)),
    }
}

/// True if the last increase in depth brought no more reads of a size.
fn at_limit(cells: &[Cell], bytes: u64) -> bool {
    let of_size = cells.iter().filter(|cell| cell.bytes == bytes);
    let by_depth: BTreeMap<u32, f64> = of_size.map(|cell| (cell.depth, rate(cell))).collect();
    let rates: Vec<f64> = by_depth.into_values().collect();
    matches!(rates.as_slice(), [.., before, last] if *last < before * MIN_DEPTH_GAIN)
}

/// Returns the bytes per second of one connection, from the additional time of the largest reads over the next smaller
/// at the lowest depth.
fn connection(cells: &[Cell]) -> Option<u64> {
    let depth = cells.iter().map(|cell| cell.depth).min()?;
    let mut alone: Vec<&Cell> = cells.iter().filter(|cell| cell.depth == depth).collect();
    alone.sort_by_key(|cell| cell.bytes);
    let [.., smaller, larger] = alone.as_slice() else {
        return None;
    };
    let [short, long] = [smaller, larger].map(|cell| cell.tally.latency_ns.value_at_quantile(0.5) as f64 / 1e9);
    (long > short * MIN_LATENCY_RATIO).then(|| ((larger.bytes - smaller.bytes) as f64 / (long - short)) as u64)
}

fn errors(cells: &[Cell]) -> Vec<InjectedError> {
    let mut kinds: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
    let calls: u64 = cells.iter().map(Cell::calls).sum();
    for (kind, faults) in cells.iter().flat_map(|cell| &cell.tally.faults) {
        let sum = kinds.entry(kind).or_default();
        *sum = (sum.0 + faults.calls, sum.1 + faults.took);
    }
    let failed: u64 = kinds.values().map(|(failed, _)| failed).sum();
    let error = |(kind, (count, took)): (&str, (u64, Duration))| InjectedError {
        kind: kind.to_owned(),
        rate: count as f64 / (calls + failed) as f64,
        after_ms: u64::try_from(took.as_millis() / u128::from(count.max(1))).ok(),
    };
    kinds.into_iter().map(error).collect()
}

/// Compares each round with all rounds: the geometric mean over the points, so that fast and slow points count alike.
fn rounds(measured: &CalibrationResults) -> Vec<RecordedRound> {
    let ratio = |round: usize, share: f64, of: fn((u64, u64)) -> u64| {
        let ratio = |cell: &Cell| {
            let own = of(cell.by_round.get(round).copied().flatten()?).max(1) as f64;
            Some(own / cell.tally.latency_ns.value_at_quantile(share).max(1) as f64)
        };
        (geometric_mean(measured.cells.iter().filter_map(ratio)).value * 1e4).round() / 1e4
    };
    // An interrupted or disturbed round may lack figures.
    let figures = |index: usize| measured.cells.iter().find_map(|cell| *cell.by_round.get(index)?);
    let round = |(index, at_s): (usize, &f64)| {
        figures(index).map(|_| RecordedRound {
            at_s: (at_s * 10.0).round() / 10.0,
            p50_ratio: ratio(index, 0.5, |(p50, _)| p50),
            p99_ratio: ratio(index, 0.99, |(_, p99)| p99),
        })
    };
    measured.rounds_at_s.iter().enumerate().filter_map(round).collect()
}

/// Ratio between rounds from which a change is shown.
const MIN_DRIFT: f64 = 1.1;

/// Columns of a terminal.
const COLUMNS: usize = 100;

/// Formats a profile for a terminal; `out` is its file.
pub(super) fn text(profile: &Recorded, out: &Path) -> String {
    let header = ["read", "depth", "p50", "p95", "p99", "reads/s", "MB/s", "reads"];
    let rows = profile.points.iter().map(|point| row(profile, point));
    let mut lines = vec![profile.label()];
    lines.extend(text_table(&Table::of_rows("", &header, 1, rows)));
    lines.extend(summary_lines(profile).iter().map(|line| wrapped(line, 2, COLUMNS)));
    let file = out.display();
    let toml = format!("[emulated] with profile = \"{file}\" in its TOML");
    let replay = format!("replay it over another tier: --set emulated.profile={file}, or {toml}");
    lines.push(wrapped(&replay, 2, COLUMNS));
    lines.join("\n") + "\n"
}

fn row(profile: &Recorded, point: &RecordedPoint) -> Vec<String> {
    let at = |share: f64| {
        let mut quantiles = profile.shares.iter().zip(&point.latency_us);
        let found = quantiles.find(|(of, _)| **of >= share).map(|(_, us)| *us);
        or_none(found.filter(|_| point.calls >= samples_needed(share)), latency)
    };
    vec![
        bytes(point.bytes),
        point.depth.to_string(),
        at(0.5),
        at(0.95),
        at(0.99),
        amount(point.calls_per_s),
        amount(point.calls_per_s * point.bytes as f64 / 1e6),
        thousands(point.calls),
    ]
}

fn summary_lines(profile: &Recorded) -> Vec<String> {
    let mut summary_lines = Vec::new();
    let limits = &profile.limits;
    let mb = |bytes: u64| amount(bytes as f64 / 1e6);
    if let Some(bytes) = limits.connection_bytes_per_s {
        summary_lines.push(format!("one read: {} MB/s after its first byte", mb(bytes)));
    }
    let limit_text = |is_limit: bool| match is_limit {
        true => "a limit: more depth did not raise it",
        false => "no limit reached",
    };
    summary_lines.push(format!(
        "all reads: {} MB/s ({}), {} reads/s ({})",
        mb(limits.total_bytes_per_s),
        limit_text(limits.total_is_limit),
        limits.requests_per_s,
        limit_text(limits.requests_is_limit)
    ));
    summary_lines.extend(profile.errors.iter().map(|error| {
        let percent = error.rate * 100.0;
        format!("errors: {} in {percent:.3} % of the reads", error.kind)
    }));
    let disturbed = |note: &&String| note.starts_with("disturbed: ");
    summary_lines.extend(profile.origin.notes.iter().filter(disturbed).cloned());
    let medians = || profile.rounds.iter().map(|round| round.p50_ratio);
    let (min, max) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    if max > min * MIN_DRIFT {
        summary_lines.push(format!(
            "drift: medians of rounds range from {min:.2} to {max:.2} times the overall median; a replay draws from all rounds"
        ));
    }
    if profile.points.iter().any(|point| point.calls < samples_needed(0.99)) {
        summary_lines.push("n/a: fewer than 10 reads beyond the percentile; raise --rounds or --seconds".to_owned());
    }
    summary_lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_storage::wrappers::emulated::RecordedEnvironment;

    fn origin() -> RecordedOrigin {
        RecordedOrigin {
            date: "2026-11-23T10:00:00Z".to_owned(),
            place: "here".to_owned(),
            tier: "memory".to_owned(),
            notes: Vec::new(),
            environment: RecordedEnvironment::default(),
        }
    }

    /// Creates a cell of reads from `us` to 2 x `us`, one per microsecond, over `window_s` seconds.
    fn cell(bytes: u64, depth: u32, us: u64, window_s: f64) -> Cell {
        let mut cell = Cell {
            bytes,
            depth,
            ..Cell::default()
        };
        for us in us..=2 * us {
            cell.tally.latency_ns.record(us * 1000).unwrap();
        }
        cell.tally.sums.calls = cell.tally.latency_ns.len();
        cell.window_s = window_s;
        cell.by_round = vec![Some((1500 * us, 2000 * us)), Some((3000 * us, 4000 * us))];
        cell
    }

    fn measured(cells: Vec<Cell>) -> Recorded {
        let calibrated = CalibrationResults {
            cells,
            rounds_at_s: vec![0.0, 7.0],
            ..CalibrationResults::default()
        };
        profile(origin(), &calibrated)
    }

    #[test]
    fn quantiles_are_those_of_the_reads_and_the_profile_reads_back() {
        let profile = measured(vec![cell(4096, 1, 1000, 1.0), cell(65_536, 1, 8000, 1.0)]);
        let us = &profile.points[0].latency_us;
        for (share, us) in profile.shares.iter().zip(us) {
            let want = 1000.0 + 1000.0 * share;
            assert!((us - want).abs() < 0.003 * want, "{share}: {us}, not {want}");
        }
        assert_eq!(Recorded::parse("x", &profile.to_text().unwrap()).unwrap(), profile);
        assert_eq!(profile.rounds.len(), 2);
        let (first, second) = (profile.rounds[0], profile.rounds[1]);
        assert!(
            (first.p50_ratio - 1.0).abs() < 0.01 && (second.p50_ratio - 2.0).abs() < 0.01,
            "{second:?}"
        );
        // 61,440 bytes in 10.5 ms.
        let rate = profile.limits.connection_bytes_per_s.unwrap() as f64;
        assert!((rate / 5.85e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn a_round_without_figures_is_left_out() {
        let mut cell = cell(4096, 1, 1000, 1.0);
        // The second round was disturbed, the third interrupted.
        cell.by_round[1] = None;
        let measured = CalibrationResults {
            cells: vec![cell],
            rounds_at_s: vec![0.0, 7.0, 14.0],
            ..CalibrationResults::default()
        };
        let rounds = profile(origin(), &measured).rounds;
        assert_eq!(Vec::from_iter(rounds.iter().map(|round| round.at_s)), [0.0]);
    }

    #[test]
    fn a_limit_is_one_where_depth_brings_no_more() {
        // 1,001 reads in 1 s, 0.5 s, 0.48 s: the last step brings 4 %.
        let small = [(1, 1.0), (8, 0.5), (32, 0.48)].map(|(depth, window_s)| cell(4096, depth, 1000, window_s));
        let large = [(1, 1.0), (8, 0.5), (32, 0.2)].map(|(depth, window_s)| cell(1 << 20, depth, 1000, window_s));
        let profile = measured(small.into_iter().chain(large).collect());
        assert!(profile.limits.requests_is_limit && !profile.limits.total_is_limit);
        assert_eq!(profile.limits.total_bytes_per_s, 1001 * 5 * (1 << 20));
        // The larger read is as fast as the smaller one: no rate can be derived.
        assert_eq!(profile.limits.connection_bytes_per_s, None);
    }

    #[test]
    fn errors_are_shares_of_all_reads() {
        let mut failing = cell(4096, 1, 999, 1.0);
        let faults = failing.tally.faults.entry("timeout").or_default();
        faults.calls = 250;
        faults.took = Duration::from_secs(500);
        let profile = measured(vec![failing]);
        let [error] = profile.errors.as_slice() else {
            panic!("{:?}", profile.errors)
        };
        assert_eq!(
            (error.kind.as_str(), error.rate, error.after_ms),
            ("timeout", 0.2, Some(2000))
        );
        assert!(profile.to_text().is_ok());
    }

    #[test]
    fn shares_ascend_from_0_to_1() {
        let shares = shares();
        assert!(shares.is_sorted_by(|a, b| a < b));
        assert_eq!((shares[0], shares[shares.len() - 1]), (0.0, 1.0));
        assert!([0.5, 0.95, 0.99, 0.999].iter().all(|share| shares.contains(share)));
    }

    #[test]
    fn it_says_what_was_seen_and_what_cannot_be_said() {
        let point = |depth: u32, calls: u64| RecordedPoint {
            bytes: 4096,
            depth,
            calls,
            calls_per_s: 250.0,
            latency_us: vec![100.0, 200.0, 300.0, 4000.0, 5000.0],
        };
        let round = |p50_ratio: f64| RecordedRound {
            at_s: 0.0,
            p50_ratio,
            p99_ratio: 1.0,
        };
        let profile = Recorded {
            schema: SCHEMA,
            shares: vec![0.0, 0.5, 0.95, 0.99, 1.0],
            origin: RecordedOrigin {
                date: "2026-11-23T10:00:00Z".to_owned(),
                place: "here".to_owned(),
                tier: "s3".to_owned(),
                notes: Vec::new(),
                environment: RecordedEnvironment::default(),
            },
            limits: RecordedLimits::default(),
            errors: Vec::new(),
            rounds: vec![round(0.9), round(1.2)],
            points: vec![point(1, 1000), point(8, 100)],
        };
        assert_eq!(row(&profile, &profile.points[1])[2..5], ["200 µs", "n/a", "n/a"]);
        let text = text(&profile, Path::new("p.toml"));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for wanted in [
            "200 µs",
            "300 µs",
            "4.00 ms",
            "n/a",
            "drift: ",
            "emulated.profile=p.toml",
            "no limit reached",
        ] {
            assert!(text.contains(wanted), "no `{wanted}` in\n{text}");
        }
        let steady = Recorded {
            rounds: vec![round(1.0)],
            points: vec![point(1, 1000)],
            ..profile
        };
        let text = super::text(&steady, Path::new("p.toml"));
        assert!(!text.contains("drift: ") && !text.contains("n/a"), "{text}");
    }
}
