//! The rounds. In: a tier, sizes and depths. Out: latencies of each, of all rounds together and of each round. In every round each size is
//! read at each depth once, in an order drawn anew, so that changes over time affect all alike.

use super::options::Options;
use crate::drive::{Driven, Faults};
use crate::plan::{Access, CacheState, Point};
use crate::rounds::{Rounds, order};
use crate::runner::Station;
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tierlab_instrument::units::bytes;

/// Time of a step beside its window.
const BESIDE: Duration = Duration::from_millis(100);
/// Time between checks for an interrupt in a pause.
const WAKE: Duration = Duration::from_millis(100);

/// Results of all rounds.
#[derive(Debug)]
pub(super) struct Calibrated {
    pub(super) cells: Vec<Cell>,
    /// Start of each round in seconds, from the first.
    pub(super) rounds_at_s: Vec<f64>,
}

/// Results of one size at one depth.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) bytes: u64,
    pub(super) depth: u32,
    pub(super) calls: u64,
    pub(super) window_s: f64,
    pub(super) latency_ns: Histogram<u64>,
    /// Median and 99th percentile of each round in nanoseconds; `None` without a finished read.
    pub(super) by_round: Vec<Option<(u64, u64)>>,
    pub(super) faults: BTreeMap<&'static str, Faults>,
}

impl Cell {
    pub(super) fn new(bytes: u64, depth: u32) -> Result<Self> {
        let mut latency_ns = Histogram::new(3)?;
        latency_ns.auto(true);
        Ok(Self {
            bytes,
            depth,
            calls: 0,
            window_s: 0.0,
            latency_ns,
            by_round: Vec::new(),
            faults: BTreeMap::new(),
        })
    }

    fn add(&mut self, driven: &Driven) -> Result<()> {
        let tally = &driven.tally;
        self.latency_ns
            .add(&tally.latency_ns)
            .context("a latency is too long")?;
        self.calls += tally.sums.calls;
        self.window_s += driven.window.as_secs_f64();
        let of = |share| tally.latency_ns.value_at_quantile(share);
        self.by_round.push((tally.sums.calls > 0).then(|| (of(0.5), of(0.99))));
        for (kind, faults) in &tally.faults {
            self.faults.entry(*kind).or_default().add(faults);
        }
        Ok(())
    }
}

impl Calibrated {
    /// Checks that the results describe the tier.
    ///
    /// # Errors
    /// A size at a depth without a finished read, or more failed reads than good ones.
    pub(super) fn check(&self) -> Result<()> {
        for cell in &self.cells {
            let what = || format!("reads of {} at depth {}", bytes(cell.bytes), cell.depth);
            let failed: u64 = cell.faults.values().map(|faults| faults.calls).sum();
            if failed > cell.calls {
                let words = cell
                    .faults
                    .values()
                    .map(|faults| faults.words.as_str())
                    .next()
                    .unwrap_or_default();
                bail!("{}: {failed} of {} failed: {words}", what(), failed + cell.calls);
            }
            if cell.calls == 0 {
                bail!("{}: none ended in {:.1} s; give more --seconds", what(), cell.window_s);
            }
        }
        Ok(())
    }
}

/// Measures until all rounds are over or an interrupt.
pub(super) fn rounds(station: &mut Station, options: &Options, direct: bool, stop: &Stop) -> Result<Calibrated> {
    let access = options.access();
    let mut points = Vec::new();
    for bytes in options.blocks() {
        points.extend(options.depths().into_iter().map(|depth| point(bytes, depth, direct)));
    }
    let cells = points.iter().map(|point| Cell::new(point.block_bytes, point.depth));
    let mut cells = cells.collect::<Result<Vec<Cell>>>()?;
    let (begun, mut rounds_at_s) = (Instant::now(), Vec::new());
    let order = order(access.seed, options.rounds, &points);
    let expected = access.warmup + access.window + BESIDE;
    Rounds::new(options.rounds, stop, order.len(), expected).measure(&order, |round, point| {
        if rounds_at_s.len() as u32 == round {
            pause(begun + options.every * round, stop);
            if stop.is_asked() {
                return Ok(());
            }
            rounds_at_s.push(begun.elapsed().as_secs_f64());
        }
        let driven = one(station, point, &access, round, stop)?;
        let is_own = |cell: &&mut Cell| (cell.bytes, cell.depth) == (point.block_bytes, point.depth);
        match cells.iter_mut().find(is_own) {
            Some(cell) if !stop.is_asked() => cell.add(&driven),
            _ => Ok(()),
        }
    })?;
    Ok(Calibrated { cells, rounds_at_s })
}

fn one(station: &mut Station, point: &Point, access: &Access, round: u32, stop: &Stop) -> Result<Driven> {
    station.prepare(point, access)?;
    station.settle(point)?;
    let driven = station.measure(point, access, round, stop)?;
    match station.shortfall(&driven) {
        Some(why) if driven.tally.sums.calls > 0 => bail!("the tier is not what it was configured for: {why}"),
        _ => Ok(driven),
    }
}

fn point(block_bytes: u64, depth: u32, direct: bool) -> Point {
    Point {
        cache: if direct { CacheState::Bypassed } else { CacheState::AsIs },
        depth,
        ..Point::reads("calibrate", block_bytes)
    }
}

fn pause(until: Instant, stop: &Stop) {
    while !stop.is_asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(WAKE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_without_reads_or_with_more_failures_than_reads_says_too_little() {
        let check = |calls: u64, failed: u64| {
            let mut cell = Cell::new(4096, 8).unwrap();
            cell.calls = calls;
            let faults = Faults {
                calls: failed,
                took: Duration::ZERO,
                words: "the bucket is gone".to_owned(),
            };
            cell.faults.insert("unavailable", faults);
            let measured = Calibrated {
                cells: vec![cell],
                rounds_at_s: vec![0.0],
            };
            measured.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(10, 10), Ok(()));
        let why = check(10, 11).unwrap_err();
        assert!(
            why.contains("11 of 21 failed: the bucket is gone") && why.contains("4 KiB at depth 8"),
            "{why}"
        );
        assert!(check(0, 0).unwrap_err().contains("none ended"));
    }
}
