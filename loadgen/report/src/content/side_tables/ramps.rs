//! Ramps, block by block of their rates.

use crate::content::table::{Cell, Table, figures, words as text};
use crate::content::words;
use crate::units::{rate, thousands};
use tierlab_analysis::record::{Percentile, RampBlock, Run};

const INTRO: &str = "Each row is a tenth of the window, with the rates at its start and its end, over all repeats. Answered counts good \
                     replies by their completion. Backlog from one block is in the latency of the next";
const SHOWN: [Percentile; 3] = [Percentile::P50, Percentile::P95, Percentile::P99];

/// Table of a run; `None` without ramps.
pub(super) fn table(run: &Run) -> Option<Table> {
    let mut rows = Vec::new();
    for point in &run.points {
        let blocks = point.summary.iter().flat_map(|summary| &summary.ramp);
        rows.extend(blocks.map(|block| row(&words::name(run, &point.factors), block)));
    }
    let columns = ["point", "offered/s"].map(text).into_iter();
    let counts = ["answered/s", "errors"].map(str::to_owned);
    let times = SHOWN.map(|percentile| percentile.to_string());
    (!rows.is_empty()).then(|| Table {
        intro: INTRO.to_owned(),
        ..Table::new(columns.chain(counts.into_iter().chain(times).map(figures)), rows)
            .known()
            .titled("Ramps")
    })
}

fn row(name: &str, block: &RampBlock) -> Vec<Cell> {
    let [from, to] = block.offered_rps.map(rate);
    let counts = [
        format!("{from}–{to}"),
        rate(block.answered_rps),
        thousands(block.errors),
    ];
    let mut row = vec![Cell::plain(name)];
    row.extend(counts.map(|text| Cell::plain(&text)));
    row.extend(SHOWN.map(|percentile| Cell::latency(block.percentiles.get(&percentile).copied())));
    row
}
