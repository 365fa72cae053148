//! Report of a run of points: a table for each family of points, curves, fio.

mod curves;
mod sentences;

use super::Figures;
use crate::plan::Access;
use crate::report::{Block, Page, Part, Ran, under};
use crate::runner::summary::Summary;
use maud::html;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, bytes, digits3, latency, spread};
use tierlab_report::parts::{Cell, Table};

const HEADER: [&str; 14] = [
    "block", "depth", "calls/s", "MB/s", "of best", "p50", "p95", "p99", "p99.9", "CPU s/GB", "CPU us", "moved",
    "fetched", "verdict",
];
const NOTE: &str = "calls/s, MB/s: means over the repeats ± half of their 95 % interval. of best: share of the best MB/s that any point \
                    reached on the tier in this run. Latencies: of all repeats; n/a: fewer than 10 calls lie beyond it. CPU: of the \
                    bench's own process, for each GB read or written, and for each call. moved: bytes that the tier moved for each byte asked. fetched: \
                    bytes that the kernel fetched from storage for each byte asked.";

/// Content of the report.
pub(super) fn page<'a>(ran: &'a Ran, access: &Access, figures: &Figures) -> Page<'a> {
    let points = &figures.points;
    // Points are in order, block and depth last.
    let families = points.chunk_by(|a, b| a.point.family_text() == b.point.family_text());
    let curves = html! { @for (name, figure) in curves::figures(points) { (under(&name, &figure)) } };
    let seconds = html! { @for (name, figure) in curves::seconds(&figures.seconds) { (under(&name, &figure)) } };
    Page {
        ran,
        facts: sentences::facts(ran, access, figures),
        badges: badges(points),
        parts: vec![
            Part::List("Beside fio", sentences::peers(points)),
            Part::List("Checkpoints", sentences::checkpoints(points)),
            Part::Charts("Latency", curves),
            Part::Charts("Each second", seconds),
            Part::Tables("Every point", families.map(block).collect(), NOTE),
            Part::List("To beware of", sentences::cautions(ran, figures)),
            Part::Text("fio's commands", sentences::commands(points)),
        ],
    }
}

/// Number of points of each verdict.
fn badges(points: &[Summary]) -> Vec<(&'static str, String)> {
    ["valid", "saturated", "unknown", "failed"]
        .into_iter()
        .filter_map(|word| {
            let count = points.iter().filter(|point| point.verdict.word() == word).count();
            (count > 0).then(|| (class(word), format!("{count} {word}")))
        })
        .collect()
}

/// Colour of a verdict.
fn class(verdict: &'static str) -> &'static str {
    match verdict {
        "unknown" | "failed" => "invalid",
        verdict => verdict,
    }
}

/// Table of points that differ in block and depth alone.
fn block(here: &[Summary]) -> Block {
    let name = here[0].point.family_text();
    Block {
        bars: Vec::new(),
        table: Table::of_rows(&name, &HEADER, 0, here.iter().map(row)),
    }
}

fn row(summary: &Summary) -> Vec<Cell> {
    let point = &summary.point;
    let time = |interval: &Option<Interval>| interval.map_or_else(|| NONE.to_owned(), |us| latency(us.value));
    let share = |share: Option<f64>| share.map_or_else(|| NONE.to_owned(), digits3);
    let of_bytes = |text: String| match point.operation.moves_bytes() {
        true => text,
        false => NONE.to_owned(),
    };
    let figures = [
        bytes(point.block_bytes),
        point.depth.to_string(),
        spread(&summary.iops),
        of_bytes(spread(&summary.mb_per_s)),
        of_bytes(format!("{:.0} %", summary.share_of_best_mb * 100.0)),
        time(&summary.p50_us),
        time(&summary.p95_us),
        time(&summary.p99_us),
        time(&summary.p999_us),
        share(summary.cpu_s_per_gb.map(|cpu| cpu.value)),
        digits3(summary.cpu_us_per_call.value),
        share(summary.over_read),
        share(summary.fetched_share),
    ];
    let verdict = Cell::badge(class(summary.verdict.word()), summary.verdict_word());
    figures.into_iter().map(Cell::from).chain([verdict]).collect()
}
