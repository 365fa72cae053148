//! The rounds. In: a tier, sizes and depths. Out: latencies of each, of all rounds together and of each round. In every round each size is
//! read at each depth once, in an order drawn anew, so that changes over time affect all alike.

use super::options::CalibrateOptions;
use crate::drive::{Driven, Tally};
use crate::plan::{CacheState, Point};
use crate::rounds::{Rounds, order};
use crate::station::Station;
use crate::stop::Stop;
use anyhow::{Result, bail};
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
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) bytes: u64,
    pub(super) depth: u32,
    pub(super) window_s: f64,
    /// Calls of all rounds.
    pub(super) tally: Tally,
    /// Median and 99th percentile of each round in nanoseconds; `None` without a finished read.
    pub(super) by_round: Vec<Option<(u64, u64)>>,
}

impl Cell {
    /// Number of reads.
    pub(super) const fn calls(&self) -> u64 {
        self.tally.sums.calls
    }

    fn add(&mut self, driven: &Driven) {
        let tally = &driven.tally;
        self.tally.add(tally);
        self.window_s += driven.window.as_secs_f64();
        let of = |share| tally.latency_ns.value_at_quantile(share);
        self.by_round.push((tally.sums.calls > 0).then(|| (of(0.5), of(0.99))));
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
            let faults = || cell.tally.faults.values();
            let failed: u64 = faults().map(|faults| faults.calls).sum();
            if failed > cell.calls() {
                let words = faults().next().map_or("", |faults| faults.words.as_str());
                bail!("{}: {failed} of {} failed: {words}", what(), failed + cell.calls());
            }
            if cell.calls() == 0 {
                bail!("{}: none ended in {:.1} s; give more --seconds", what(), cell.window_s);
            }
        }
        Ok(())
    }
}

/// Measures until all rounds are over or an interrupt.
pub(super) fn rounds(
    station: &mut Station,
    options: &CalibrateOptions,
    direct: bool,
    stop: &Stop,
) -> Result<Calibrated> {
    let access = options.access();
    let mut points = Vec::new();
    for bytes in options.blocks() {
        points.extend(options.depths().into_iter().map(|depth| point(bytes, depth, direct)));
    }
    let cell = |point: &Point| Cell {
        bytes: point.block_bytes,
        depth: point.depth,
        ..Cell::default()
    };
    let mut cells: Vec<Cell> = points.iter().map(cell).collect();
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
        station.prepare(point, &access)?;
        let driven = station.measure(point, &access, round, stop)?;
        let is_own = |cell: &&mut Cell| (cell.bytes, cell.depth) == (point.block_bytes, point.depth);
        if let Some(cell) = cells.iter_mut().find(is_own).filter(|_| !stop.is_asked()) {
            cell.add(&driven);
        }
        Ok(())
    })?;
    Ok(Calibrated { cells, rounds_at_s })
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
            let mut cell = Cell {
                bytes: 4096,
                depth: 8,
                ..Cell::default()
            };
            cell.tally.sums.calls = calls;
            let faults = cell.tally.faults.entry("unavailable").or_default();
            faults.calls = failed;
            "the bucket is gone".clone_into(&mut faults.words);
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
