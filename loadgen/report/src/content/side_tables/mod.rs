//! Tables beside the curves: what is no latency over a rate. In: a run. Out: the tables that it has, each with what to know of it in words.

mod cold_starts;
mod driven;
mod fleet;
mod side_table;

pub(crate) use side_table::SideTable;

use tierlab_analysis::record::Run;

/// All that a run has.
pub(crate) fn side_tables(run: &Run) -> Vec<SideTable> {
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
