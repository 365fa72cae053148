//! Coverage of intervals, power of tests and their false alarms, against a known truth.

mod comparisons;
mod drifts;
mod intervals;
mod laws;
mod searches;
mod verdicts;

use crate::study::simulate;
use crate::table::Tables;
use anyhow::Result;
use std::path::Path;
use tierlab_analysis::record::{Factors, Histograms, Outcome, Point, Repeat, Sample};
use tierlab_analysis::statistics::percentile::histogram;
use tierlab_load::schedule::Schedule;

/// Table of the study.
#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
pub(crate) enum Table {
    /// Intervals of percentiles
    Coverage,
    /// Highest rate that meets an objective
    HighestRate,
    /// Drifts that are found, and false alarms
    Drifts,
    /// Comparisons of two runs
    Compare,
    /// Verdicts near capacity
    Verdicts,
}

/// Simulates one table, or all; each is written as soon as it is simulated.
///
/// # Errors
/// A file cannot be written; a row does not hold.
pub(crate) fn run(folder: &Path, only: Option<Table>, trials: usize, seed: u64) -> Result<()> {
    let mut tables = Tables::new(folder)?;
    let is_requested = |table| only.is_none_or(|only| only == table);
    if is_requested(Table::Coverage) {
        let rows = simulate("coverage", &intervals::settings(), trials, seed, intervals::rows).concat();
        tables.write("coverage", &intervals::about(&rows), &rows)?;
    }
    if is_requested(Table::HighestRate) {
        let rows = simulate("highest rate", &searches::settings(), trials, seed, searches::row);
        tables.write("highest_rate", searches::ABOUT, &rows)?;
    }
    if is_requested(Table::Drifts) {
        let rows = simulate("drifts", &drifts::settings(), trials, seed, drifts::row);
        tables.write("drifts", drifts::ABOUT, &rows)?;
    }
    if is_requested(Table::Compare) {
        let rows = simulate("compare", &comparisons::settings(), trials, seed, comparisons::row);
        tables.write("compare", comparisons::ABOUT, &rows)?;
    }
    if is_requested(Table::Verdicts) {
        let rows = simulate("verdicts", &verdicts::settings(), trials, seed, verdicts::row);
        tables.write("verdicts", verdicts::ABOUT, &rows)?;
    }
    tables.finish()
}

/// Time blocks of a repeat: enough for thirds and for the course within a window.
const BLOCKS: usize = 12;

/// Repeat at a rate, its requests independent.
fn repeat(index: usize, latencies_us: &[f64], rps: f64) -> Repeat {
    let latencies: Vec<u64> = latencies_us.iter().map(|us| us.round() as u64).collect();
    let repeat = answered(index as u32, &latencies, latencies.len() as f64 / rps, BLOCKS);
    Repeat {
        achieved_rps: rps,
        in_flight_by_stays: Some(repeat.mean_in_flight),
        ..repeat
    }
}

/// Repeat in which every request was sent in time and answered. `latencies` are in microseconds.
fn answered(index: u32, latencies: &[u64], window_s: f64, blocks: usize) -> Repeat {
    let requests = latencies.len() as u64;
    let block = latencies.len().div_ceil(blocks).max(1);
    Repeat {
        index,
        seed: u64::from(index),
        window_s,
        scheduled: requests,
        completed: requests,
        achieved_rps: requests as f64 / window_s,
        mean_in_flight: latencies.iter().sum::<u64>() as f64 / 1e6 / window_s,
        tail_autocorrelation_time: Some(1.0),
        histograms: Histograms {
            block_s: window_s / blocks as f64,
            latency: latencies.chunks(block).map(histogram).collect(),
            ..Histograms::default()
        },
        ..Repeat::empty()
    }
}

/// Point of these repeats.
fn point_of(rps: f64, repeats: Vec<Repeat>) -> Point {
    let factors = Factors {
        tier: "simulated".into(),
        cache: "none".into(),
        model: "none".into(),
        batch_size: 1,
        offered_rps: rps,
        arrivals: "poisson".into(),
        keys: "none".into(),
        ..Factors::default()
    };
    Point {
        factors,
        repeats,
        summary: None,
    }
}

/// Request that was sent in time and answered.
const fn answer(due_us: u64, done_us: u64) -> Sample {
    Sample {
        due_us,
        sent_us: due_us,
        done_us,
        outcome: Outcome::Ok,
        timings: None,
    }
}

/// Due and completion times of requests to one server that is idle at first, in microseconds.
fn served(schedule: &Schedule, mut service_us: impl FnMut() -> f64) -> impl Iterator<Item = (u64, f64)> {
    let mut free_us = 0.0_f64;
    schedule.due_us.iter().map(move |&due_us| {
        free_us = free_us.max(due_us as f64) + service_us();
        (due_us, free_us)
    })
}
