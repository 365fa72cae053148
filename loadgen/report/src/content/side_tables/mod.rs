//! Tables of everything that is no latency over a rate. In: a run. Out: its tables, each with sentences.

mod cold_starts;
mod driven;
mod fleet;
mod gpus;

pub(crate) use cold_starts::{stage_s, stages};
pub(crate) use gpus::table as gpus;

use super::table::Table;
use tierlab_analysis::record::Run;

/// Tables of a run.
pub(crate) fn side_tables(run: &Run) -> Vec<Table> {
    [
        cold_starts::table(run),
        driven::closed_loops(run),
        driven::journeys(run),
        fleet::table(run),
    ]
    .into_iter()
    .flatten()
    .collect()
}
