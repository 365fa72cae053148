//! Measurement rounds. In: a tier, sizes and depths. Out: latencies of each size and depth, per round and over all rounds. Each round
//! reads each size at each depth once, in a new random order, so that changes over time affect all alike.

use super::CalibrateOptions;
use crate::drive::{RepeatResult, Tally};
use crate::plan::{CacheState, Point};
use crate::prepared_tier::PreparedTier;
use crate::rounds::{Rounds, STEP_OVERHEAD, shuffled_rounds};
use crate::stop::{POLL_INTERVAL, Stop, sleep_until};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::time::Instant;
use tierlab_analysis::record::Limits;
use tierlab_instrument::units::{bytes, count_of};

/// Results of all rounds.
#[derive(Debug, Default)]
pub(super) struct CalibrationResults {
    pub(super) cells: Vec<Cell>,
    /// Sentence about disturbed steps; empty if there are none.
    pub(super) disturbed: String,
    /// Start of each round, in seconds after the first.
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

/// One size at one depth in one round.
struct MeasuredStep {
    result: RepeatResult,
    /// Disturbance of the machine, in words.
    disturbed: Option<String>,
}

impl Cell {
    /// Number of reads.
    pub(super) const fn calls(&self) -> u64 {
        self.tally.sums.calls
    }

    /// Adds the steps of its rounds, without the disturbed ones if at least half are quiet. Returns the number left out.
    fn add_all(&mut self, steps: &[MeasuredStep]) -> usize {
        let quiet = steps.iter().filter(|step| step.disturbed.is_none()).count();
        let includes_all = 2 * quiet < steps.len();
        for step in steps {
            match step.disturbed.is_none() || includes_all {
                true => self.add(&step.result),
                false => self.by_round.push(None),
            }
        }
        if includes_all { 0 } else { steps.len() - quiet }
    }

    fn add(&mut self, result: &RepeatResult) {
        let tally = &result.tally;
        self.tally.add(tally);
        self.window_s += result.window.as_secs_f64();
        let of = |share| tally.latency_ns.value_at_quantile(share);
        self.by_round.push((tally.sums.calls > 0).then(|| (of(0.5), of(0.99))));
    }
}

impl CalibrationResults {
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
                let error = faults().next().map_or("", |faults| faults.first_error.as_str());
                bail!("{}: {failed} of {} failed: {error}", what(), failed + cell.calls());
            }
            if cell.calls() == 0 {
                bail!("{}: none ended in {:.1} s; raise --seconds", what(), cell.window_s);
            }
        }
        Ok(())
    }
}

/// Measures until all rounds are over or an interrupt.
pub(super) fn rounds(
    tier: &mut PreparedTier,
    options: &CalibrateOptions,
    direct: bool,
    stop: &Stop,
) -> Result<CalibrationResults> {
    let access = options.access();
    let cache = if direct { CacheState::Bypassed } else { CacheState::AsIs };
    let mut points = Vec::new();
    for block_bytes in options.blocks() {
        points.extend(options.depths().into_iter().map(|depth| Point {
            cache,
            depth,
            ..Point::reads("calibrate", block_bytes)
        }));
    }
    let mut steps: BTreeMap<Point, Vec<MeasuredStep>> = BTreeMap::new();
    let (started, mut rounds_at_s) = (Instant::now(), Vec::new());
    let order = shuffled_rounds(access.seed, options.rounds, &points);
    let expected = (access.warmup + access.window + STEP_OVERHEAD).max(options.every / points.len() as u32);
    Rounds::new(options.rounds, stop, order.len(), expected).measure(&order, |round, point| {
        if rounds_at_s.len() as u32 == round {
            sleep_until(started + options.every * round, POLL_INTERVAL, || stop.is_requested());
            if stop.is_requested() {
                return Ok(());
            }
            rounds_at_s.push(started.elapsed().as_secs_f64());
        }
        tier.prepare(point, &access, stop)?;
        let result = tier.measure(point, &access, round, stop, Ok)?;
        if !stop.is_requested() {
            let disturbed = result.machine.disturbed(&Limits::default());
            let of_point = steps.entry(point.clone()).or_default();
            of_point.push(MeasuredStep { result, disturbed });
        }
        Ok(())
    })?;
    let (mut cells, mut left_out) = (Vec::new(), 0);
    for point in &points {
        let mut cell = Cell {
            bytes: point.block_bytes,
            depth: point.depth,
            ..Cell::default()
        };
        left_out += cell.add_all(steps.get(point).map_or(&[], Vec::as_slice));
        cells.push(cell);
    }
    Ok(CalibrationResults {
        cells,
        disturbed: disturbed(steps.values().flatten(), left_out),
        rounds_at_s,
    })
}

/// Sentence about disturbed steps, `left_out` of which are excluded.
fn disturbed<'a>(steps: impl Iterator<Item = &'a MeasuredStep> + Clone, left_out: usize) -> String {
    let all = steps.clone().count();
    let mut disturbed = steps.filter_map(|step| step.disturbed.as_ref()).peekable();
    let Some(first) = disturbed.peek().map(ToString::to_string) else {
        return String::new();
    };
    let (count, all) = (disturbed.count(), count_of(all, "step"));
    let counts = match left_out < count {
        true => "; the figures include some of them: record again on a quiet machine",
        false => "",
    };
    format!("disturbed: {count} of {all}, {left_out} of them left out, such as: {first}{counts}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineUse;
    use std::time::Duration;

    #[test]
    fn steps_beside_other_work_are_left_out_and_named() {
        let step = |ns: u64, why: Option<&str>| {
            let mut tally = Tally::default();
            tally.call(ns.into(), 4096, false, &tierlab_storage::ReadCost::default());
            MeasuredStep {
                result: RepeatResult {
                    seconds: Vec::new(),
                    tally,
                    window: Duration::from_secs(1),
                    machine: MachineUse::default(),
                },
                disturbed: why.map(str::to_owned),
            }
        };
        let busy = "foreign processes used 47 % of the CPUs";
        let mut cell = Cell::default();
        let steps = [step(1000, None), step(9000, Some(busy)), step(1000, None)];
        assert_eq!(cell.add_all(&steps), 1);
        assert_eq!(
            (cell.calls(), cell.tally.latency_ns.max() < 2000, cell.by_round[1]),
            (2, true, None)
        );
        assert_eq!(
            disturbed(steps.iter(), 1),
            format!("disturbed: 1 of 3 steps, 1 of them left out, such as: {busy}")
        );
        let steps = [step(9000, Some(busy)), step(9000, Some(busy)), step(1000, None)];
        assert_eq!(Cell::default().add_all(&steps), 0);
        assert!(disturbed(steps.iter(), 0).contains("record again on a quiet machine"));
        assert_eq!(disturbed([step(1, None)].iter(), 0), "");
    }

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
            "the bucket is gone".clone_into(&mut faults.first_error);
            let measured = CalibrationResults {
                cells: vec![cell],
                rounds_at_s: vec![0.0],
                ..CalibrationResults::default()
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
