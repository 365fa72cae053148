//! Streamed replies, point by point: times of their events, and counts a request.

use crate::content::table::{Cell, Table, figures, words as text};
use crate::content::words;
use crate::units::{digits3, rate};
use tierlab_analysis::record::{Percentile, Point, Run, StreamFigure};

const INTRO: &str = "First byte and first event (ttft) count from the scheduled send, as the latency does. Gaps are between two events of \
                     one reply; percentiles are over all gaps. Times are taken as bytes arrive, before parsing. Goodput counts replies that \
                     meet every objective at once, gaps by their mean in a reply";
const TIMES: [(StreamFigure, &str); 3] = [
    (StreamFigure::FirstByte, "first byte"),
    (StreamFigure::Ttft, "ttft"),
    (StreamFigure::Gap, "gap"),
];
const COUNTS: [StreamFigure; 3] = [StreamFigure::Events, StreamFigure::Bytes, StreamFigure::Tokens];
const SHOWN: [Percentile; 2] = [Percentile::P50, Percentile::P99];

/// Table of a run; `None` without streams.
pub(super) fn table(run: &Run) -> Option<Table> {
    let rows: Vec<Vec<Cell>> = run.points.iter().filter_map(|point| row(run, point)).collect();
    let times = TIMES
        .iter()
        .flat_map(|(_, name)| SHOWN.map(|percentile| format!("{name} {percentile}")));
    let counts = COUNTS.iter().map(|figure| format!("{figure}/request"));
    let others = ["tokens/s", "goodput/s"].map(str::to_owned);
    let columns = times.chain(counts).chain(others).map(figures);
    (!rows.is_empty()).then(|| Table {
        intro: INTRO.to_owned(),
        ..Table::new(std::iter::once(text("point")).chain(columns), rows)
            .known()
            .titled("Streamed replies")
    })
}

fn row(run: &Run, point: &Point) -> Option<Vec<Cell>> {
    let summary = point.summary.as_ref().filter(|summary| !summary.streams.is_empty())?;
    let mut row = vec![Cell::plain(&words::name(run, &point.factors))];
    for (figure, _) in TIMES {
        let shown = summary.streams.get(&figure).map(|figure| &figure.percentiles);
        row.extend(SHOWN.map(|percentile| Cell::latency(shown.and_then(|shown| shown.get(&percentile).copied()))));
    }
    let mean = |figure: StreamFigure| summary.streams.get(&figure).map(|figure| figure.mean);
    row.extend(COUNTS.map(|figure| Cell::of(mean(figure).map(digits3))));
    let tokens = mean(StreamFigure::Tokens).map(|tokens| tokens * summary.achieved_rps.value);
    row.push(Cell::of(tokens.map(rate)));
    row.push(Cell::of(summary.goodput_rps.map(|goodput| rate(goodput.value))));
    Some(row)
}
