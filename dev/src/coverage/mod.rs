//! Coverage of intervals, power of tests and their false alarms, against a known truth.

mod comparisons;
mod drifts;
mod intervals;
mod laws;
mod points;
mod searches;
mod verdicts;

use crate::study::simulate;
use crate::table::Tables;
use anyhow::Result;
use std::path::Path;

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
    let is_asked = |table| only.is_none_or(|only| only == table);
    if is_asked(Table::Coverage) {
        let rows = |setting, seed| intervals::rows(setting, trials, seed);
        let rows = simulate("coverage", &intervals::settings(), seed, rows).concat();
        tables.write("coverage", &intervals::about(&rows), &rows)?;
    }
    if is_asked(Table::HighestRate) {
        let row = |setting, seed| searches::row(setting, trials, seed);
        let rows = simulate("highest rate", &searches::settings(), seed, row);
        tables.write("highest_rate", searches::ABOUT, &rows)?;
    }
    if is_asked(Table::Drifts) {
        let row = |setting, seed| drifts::row(setting, trials, seed);
        let rows = simulate("drifts", &drifts::settings(), seed, row);
        tables.write("drifts", drifts::ABOUT, &rows)?;
    }
    if is_asked(Table::Compare) {
        let row = |setting, seed| comparisons::row(setting, trials, seed);
        let rows = simulate("compare", &comparisons::settings(), seed, row);
        tables.write("compare", comparisons::ABOUT, &rows)?;
    }
    if is_asked(Table::Verdicts) {
        let row = |setting, seed| verdicts::row(setting, trials, seed);
        let rows = simulate("verdicts", &verdicts::settings(), seed, row);
        tables.write("verdicts", verdicts::ABOUT, &rows)?;
    }
    tables.finish()
}
