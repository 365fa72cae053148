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

/// Simulates every study; each table is written as soon as it is simulated.
///
/// # Errors
/// A file cannot be written; a row does not hold.
pub(crate) fn run(folder: &Path, trials: usize, seed: u64) -> Result<()> {
    let mut tables = Tables::new(folder)?;
    let rows = |setting, seed| intervals::rows(setting, trials, seed);
    let rows = simulate("coverage", &intervals::settings(), seed, rows).concat();
    tables.write("coverage", &intervals::about(&rows), &rows)?;
    let row = |setting, seed| searches::row(setting, trials, seed);
    let rows = simulate("highest rate", &searches::settings(), seed, row);
    tables.write("highest_rate", searches::ABOUT, &rows)?;
    let row = |setting, seed| drifts::row(setting, trials, seed);
    tables.write(
        "drifts",
        drifts::ABOUT,
        &simulate("drifts", &drifts::settings(), seed, row),
    )?;
    let row = |setting, seed| comparisons::row(setting, trials, seed);
    let rows = simulate("compare", &comparisons::settings(), seed, row);
    tables.write("compare", comparisons::ABOUT, &rows)?;
    let row = |setting, seed| verdicts::row(setting, trials, seed);
    let rows = simulate("verdicts", &verdicts::settings(), seed, row);
    tables.write("verdicts", verdicts::ABOUT, &rows)?;
    tables.finish()
}
