//! Tables by point: streamed replies, ramps block by block, and the slowest requests. In: a run. Out: tables; `None` without figures.

use crate::content::labels;
use crate::content::table::{Cell, Table, figures, text};
use crate::units::{digits3, latency, rate, thousands};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Interval, Percentile, Point, RampBlock, Run, StreamFigure};

const STREAMS: &str = "First byte and first event (ttft) count from the scheduled send, as the latency does. Gaps are between two events of \
                       one reply; percentiles are over all gaps. Times are taken as bytes arrive, before parsing. Goodput counts replies \
                       that meet every objective at once, gaps by their mean in a reply";
const RAMPS: &str = "Each row is a tenth of the window, with the rates at its start and its end, over all repeats. Answered counts good \
                     replies by their completion. Backlog from one block is in the latency of the next";
const SLOWEST: &str = "The slowest good replies of each step whose requests were kept. A request is the row of that number, from 0, of its \
                       Parquet file in the run's folder";
const TIMES: [(StreamFigure, &str); 3] = [
    (StreamFigure::FirstByte, "first byte"),
    (StreamFigure::Ttft, "ttft"),
    (StreamFigure::Gap, "gap"),
];
const COUNTS: [StreamFigure; 3] = [StreamFigure::Events, StreamFigure::Bytes, StreamFigure::Tokens];
const OF_STREAMS: [Percentile; 2] = [Percentile::P50, Percentile::P99];
const OF_RAMPS: [Percentile; 3] = [Percentile::P50, Percentile::P95, Percentile::P99];
/// Maximum number of slowest requests.
const MAX_ROWS: usize = 20;

/// Streamed replies: times of their events, and counts a request.
pub(super) fn streams(run: &Run) -> Option<Table> {
    let rows = run.points.iter().filter_map(|point| stream_row(run, point));
    let times = TIMES.map(|(_, name)| OF_STREAMS.map(|percentile| format!("{name} {percentile}")));
    let counts = COUNTS.map(|figure| format!("{figure}/request"));
    let others = ["tokens/s", "goodput/s"].map(str::to_owned);
    let columns = times.into_iter().flatten().chain(counts).chain(others).map(figures);
    let columns = std::iter::once(text("point")).chain(columns);
    Some(Table::section("Streamed replies", STREAMS, columns, rows)?.filled())
}

fn stream_row(run: &Run, point: &Point) -> Option<Vec<Cell>> {
    let summary = point.summary.as_ref().filter(|summary| !summary.streams.is_empty())?;
    let mut row: Vec<Cell> = vec![labels::name(run, &point.factors).into()];
    for (figure, _) in TIMES {
        let shown = summary.streams.get(&figure).map(|figure| &figure.percentiles);
        row.extend(latencies(shown, OF_STREAMS));
    }
    let mean = |figure: StreamFigure| summary.streams.get(&figure).map(|figure| figure.mean);
    row.extend(COUNTS.map(|figure| Cell::of(mean(figure).map(digits3))));
    let tokens = mean(StreamFigure::Tokens).map(|tokens| tokens * summary.achieved_rps.value);
    row.push(Cell::of(tokens.map(rate)));
    row.push(Cell::of(summary.goodput_rps.map(|goodput| rate(goodput.value))));
    Some(row)
}

fn latencies<const N: usize>(all: Option<&BTreeMap<Percentile, Interval>>, shown: [Percentile; N]) -> [Cell; N] {
    shown.map(|percentile| Cell::latency(all.and_then(|all| all.get(&percentile).copied())))
}

/// Ramps, block by block of their rates.
pub(super) fn ramps(run: &Run) -> Option<Table> {
    let blocks = run.points.iter().flat_map(|point| {
        let blocks = point.summary.iter().flat_map(|summary| &summary.ramp);
        blocks.map(move |block| ramp_row(labels::name(run, &point.factors), block))
    });
    let columns = ["point", "offered/s"].map(text).into_iter();
    let counts = ["answered/s", "errors"].map(str::to_owned).into_iter();
    let times = OF_RAMPS.map(|percentile| percentile.to_string());
    let columns = columns.chain(counts.chain(times).map(figures));
    Some(Table::section("Ramps", RAMPS, columns, blocks)?.filled())
}

fn ramp_row(name: String, block: &RampBlock) -> Vec<Cell> {
    let [from, to] = block.offered_rps.map(rate);
    let (answered, errors) = (rate(block.answered_rps), thousands(block.errors));
    let counts = [name, format!("{from}–{to}"), answered, errors].map(Cell::from);
    let latencies = latencies(Some(&block.percentiles), OF_RAMPS);
    counts.into_iter().chain(latencies).collect()
}

/// Slowest requests with their rows in the files of requests; `None` unless requests were kept.
pub(super) fn slowest(run: &Run) -> Option<Table> {
    let mut slow = Vec::new();
    for point in &run.points {
        for repeat in &point.repeats {
            let file = repeat.requests_file.as_deref().unwrap_or_default();
            let rows = repeat.slowest.iter();
            slow.extend(rows.map(|one| (&point.factors, repeat.index, file, one)));
        }
    }
    slow.sort_by_key(|(.., one)| Reverse(one.latency_us));
    slow.truncate(MAX_ROWS);
    let rows = slow.iter().map(|(factors, repeat, file, one)| {
        let stage = one.stage.as_ref();
        let stage = stage.map(|(name, us)| format!("{name} {}", latency(*us as f64)));
        let (took, lag) = (latency(one.latency_us as f64), latency(one.lag_us as f64));
        let (number, request) = ((repeat + 1).to_string(), one.request.to_string());
        let cells = [labels::name(run, factors), number, request, took, lag].map(Cell::from);
        let file = Cell {
            is_file: true,
            ..Cell::plain(file)
        };
        cells.into_iter().chain([Cell::of(stage), file]).collect()
    });
    let numbers = ["repeat", "request", "latency", "send lag"].map(figures);
    let columns = std::iter::once(text("point")).chain(numbers);
    let columns = columns.chain(["longest stage", "file"].map(text));
    Some(Table::section("Slowest requests", SLOWEST, columns, rows)?.filled())
}
