//! Report of a run of points: a table for each family of points; curves of latency against depth, against the achieved
//! rate, and against the offered rate; a comparison with fio, cautions, facts.

use crate::plan::{Access, Point, word};
use crate::report::{Block, Page, Part, Ran, curves, under};
use crate::runner::agents::AgentFigures;
use crate::runner::record::SecondFigures;
use crate::runner::summary::{Peer, Summary, Verdict};
use crate::runner::{Figures, PointSeconds};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, bytes, digits3, latency, spread};
use tierlab_report::parts::{Axis, Cell, Chart, Figure, Line, Table, Unit};

const HEADER: [&str; 14] = [
    "block", "depth", "calls/s", "MB/s", "of best", "p50", "p95", "p99", "p99.9", "CPU s/GB", "CPU us", "moved",
    "fetched", "verdict",
];
const NOTE: &str = "calls/s, MB/s: means over the repeats ± half of their 95 % interval. of best: share of the best MB/s that any point \
                    reached on the tier in this run. Latencies: of all repeats; n/a: fewer than 10 calls beyond the percentile. CPU: of the \
                    bench's own process, per GB read or written, and per call. moved: bytes moved by the tier per requested byte. fetched: \
                    bytes that the kernel fetched from storage per requested byte.";

const BESIDE_FIO: [&str; 8] = [
    "point",
    "rate of fio's",
    "calls/s",
    "fio's",
    "p50",
    "fio's p50",
    "CPU us",
    "fio's CPU us",
];
const BESIDE_FIO_NOTE: &str = "rate of fio's: mean ratio over the repeats, each paired with fio's run of the same job, with its 95 % interval. CPU: of \
each process, per call.";

/// Content of the report.
pub(super) fn page<'a>(ran: &'a Ran, access: &Access, figures: &Figures) -> Page<'a> {
    let points = &figures.points;
    // Points are sorted, with block and depth last.
    let families = points.chunk_by(|a, b| a.point.family_text() == b.point.family_text());
    let curves = html! { @for (name, figure) in curves_of(points) { (under(&name, &figure)) } };
    let seconds = html! { @for (name, figure) in seconds(&figures.seconds) { (under(&name, &figure)) } };
    Page {
        ran,
        facts: facts(ran, access, figures),
        badges: badges(points),
        parts: vec![
            Part::Tables("Beside fio", beside_fio(points), BESIDE_FIO_NOTE),
            Part::List("Checkpoints", checkpoints(points)),
            Part::Charts("Latency", curves),
            Part::Charts("Each second", seconds),
            Part::Tables("Every point", families.map(block).collect(), NOTE),
            Part::List("To beware of", cautions(ran, figures)),
            Part::Text("fio's commands", commands(points)),
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

/// Table of points that differ only in block and depth.
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

type Of = fn(&Summary) -> Option<Interval>;
type Coordinate = fn(&Summary) -> f64;
type Series<'a> = BTreeMap<String, Vec<&'a Summary>>;

const PERCENTILES: [(&str, Of); 2] = [("p50", |summary| summary.p50_us), ("p99", |summary| summary.p99_us)];

const CLOSED: &str = "Closed loops: callers wait for their own reads. Whiskers are 95 % intervals over the repeats; hollow markers are \
                      points that are not valid.";
const OPEN: &str = "Open loops: latency counts from when a call was due. Hollow markers are rates that the tier did not sustain, or points \
                    that are not valid.";

const SECONDS: &str = "One repeat after another, without the pauses between them: a rate that falls or a latency that rises within repeats means a \
drive or an account that runs out of credit, or a cache that fills.";

/// Returns the curves over seconds with their headings.
fn seconds(points: &[PointSeconds]) -> Vec<(String, Markup)> {
    let name = |of: &PointSeconds| heading(&of.point);
    let figure = |here: &[PointSeconds]| {
        let rate = |second: &SecondFigures| Some(second.calls as f64);
        let bytes = |second: &SecondFigures| Some(second.mb_per_s);
        let tail = |second: &SecondFigures| second.p99_us;
        let charts = [
            by_second("calls ended each second", ("calls", Unit::Rate), here, rate),
            by_second("MB each second", ("MB/s", Unit::Rate), here, bytes),
            by_second("p99 of each second", ("latency", Unit::Latency), here, tail),
        ];
        let series = |of: &PointSeconds| format!("{}, depth {}", series(&of.point), of.point.depth);
        let charts = charts.into_iter().flatten().collect();
        let figure = Figure::of_names(here.iter().map(series), charts, SECONDS);
        (name(&here[0]), figure.html())
    };
    points.chunk_by(|a, b| name(a) == name(b)).map(figure).collect()
}

fn by_second(
    title: &str,
    (name, unit): (&'static str, Unit),
    here: &[PointSeconds],
    value: fn(&SecondFigures) -> Option<f64>,
) -> Option<Chart> {
    let line = |(series, of): (usize, &PointSeconds)| {
        let mut line = Line {
            series,
            ..Line::default()
        };
        for (at, second) in (1..).zip(of.repeats.iter().flatten()) {
            if let Some(value) = value(second) {
                line.push(f64::from(at), value);
            }
        }
        line
    };
    let lines: Vec<Line> = here.iter().enumerate().map(line).collect();
    let highest = lines.iter().flat_map(|line| &line.y).copied().fold(0.0, f64::max);
    let y = Axis::linear(name, unit, (0.0, highest * 1.1));
    let mut chart = curves(title.to_owned(), ("second", Unit::Count), y, lines)?;
    (chart.x.log, chart.x.range.0) = (false, 0.0);
    Some(chart)
}

/// Returns every figure with its heading.
fn curves_of(points: &[Summary]) -> Vec<(String, Markup)> {
    let mut groups: BTreeMap<(bool, u64, String), Vec<&Summary>> = BTreeMap::new();
    for summary in points {
        let point = &summary.point;
        let group = (point.rate > 0, point.block_bytes, heading(point));
        groups.entry(group).or_default().push(summary);
    }
    let figure = |((is_open, _, name), points): ((bool, u64, String), Vec<&Summary>)| {
        let html = if is_open { open(&points) } else { closed(&points) };
        (!html.0.is_empty()).then_some((name, html))
    };
    groups.into_iter().filter_map(figure).collect()
}

fn heading(point: &Point) -> String {
    let text = format!("{}: {}, {}", point.tier, point.access_text(), bytes(point.block_bytes));
    match point.rate {
        0 => text,
        _ => format!("{text}, at most {} in flight", point.depth),
    }
}

fn series(point: &Point) -> String {
    word(&point.way) + &point.manner_text()
}

fn by_series<'a>(points: &[&'a Summary]) -> Series<'a> {
    let mut all = Series::new();
    for summary in points {
        all.entry(series(&summary.point)).or_default().push(summary);
    }
    all
}

fn closed(points: &[&Summary]) -> Markup {
    let depth: Coordinate = |summary| f64::from(summary.point.depth);
    let all = by_series(points);
    if all.values().all(|points| points.len() < 2) {
        return Markup::default();
    }
    let axis = ("calls in flight", Unit::Count);
    let mut charts = percentiles("depth", axis, &all, depth);
    let (reached, iops): (_, Coordinate) = (("calls per second", Unit::Rate), |summary| summary.iops.value);
    let (_, p50) = PERCENTILES[0];
    charts.extend(chart("p50 against achieved rate", reached, &all, iops, p50));
    Figure::of_names(all.into_keys(), charts, CLOSED).html()
}

fn open(points: &[&Summary]) -> Markup {
    let rate: Coordinate = |summary| f64::from(summary.point.rate);
    let all = by_series(points);
    let charts = percentiles("rate", ("calls offered per second", Unit::Rate), &all, rate);
    Figure::of_names(all.into_keys(), charts, OPEN).html()
}

fn percentiles(against: &str, axis: (&'static str, Unit), all: &Series<'_>, x: Coordinate) -> Vec<Chart> {
    let charts = PERCENTILES
        .iter()
        .map(|(name, of)| chart(&format!("{name} against {against}"), axis, all, x, *of));
    charts.flatten().collect()
}

/// Draws a chart; `None` without a curve.
fn chart(title: &str, axis: (&'static str, Unit), all: &Series<'_>, x: Coordinate, of: Of) -> Option<Chart> {
    let line = |(series, points): (usize, &Vec<&Summary>)| {
        let mut line = Line {
            series,
            ..Line::default()
        };
        let known = points
            .iter()
            .filter_map(|summary| Some((x(summary), of(summary)?, summary)));
        let mut known: Vec<_> = known.filter(|(at, ..)| *at > 0.0).collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        known.dedup_by(|a, b| a.0 == b.0);
        for (at, us, summary) in known {
            line.push(at, us.value);
            line.lo.push(us.lo);
            line.hi.push(us.hi);
            let is_valid = summary.verdict == Verdict::Valid;
            line.off.push(if is_valid { "" } else { "not valid" });
        }
        line
    };
    let lines: Vec<Line> = all.values().enumerate().map(line).collect();
    let values = || lines.iter().flat_map(|line| &line.y).copied();
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let y = Axis::logarithmic("latency", Unit::Latency, (low / 1.3, high * 1.3));
    curves(title.to_owned(), axis, y, lines)
}

/// Table of the points that fio also measured; empty without any.
fn beside_fio(points: &[Summary]) -> Vec<Block> {
    let measured = points
        .iter()
        .flat_map(|point| point.peers.values().map(move |fio| (point, fio)));
    let rows: Vec<Vec<Cell>> = measured.map(|(point, fio)| row_beside(point, fio)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    vec![Block {
        bars: Vec::new(),
        table: Table::of_rows("", &BESIDE_FIO, 1, rows),
    }]
}

fn row_beside(summary: &Summary, fio: &Peer) -> Vec<Cell> {
    let time = |us: Option<f64>| us.map_or_else(|| NONE.to_owned(), latency);
    let figures = [
        summary.point.to_string(),
        with_ends(fio.ratio),
        digits3(summary.iops.value),
        digits3(fio.iops.value),
        time(summary.p50_us.map(|us| us.value)),
        time(fio.p50_us),
        digits3(summary.cpu_us_per_call.value),
        fio.cpu_us_per_call.map_or_else(|| NONE.to_owned(), digits3),
    ];
    figures.into_iter().map(Cell::from).collect()
}

/// Value with the ends of its interval, which are missing after one repeat.
fn with_ends(of: Interval) -> String {
    let [value, lo, hi] = [of.value, of.lo, of.hi].map(digits3);
    match of.hi.is_finite() {
        true => format!("{value} [{lo}–{hi}]"),
        false => value,
    }
}

/// Returns a sentence for each checkpoint and each restore.
fn checkpoints(points: &[Summary]) -> Vec<String> {
    let sentence = |summary: &Summary| {
        let took = summary.took_s.filter(|_| summary.calls > 0)?;
        let all = summary.point.block_bytes * u64::from(summary.point.depth);
        let (point, all) = (&summary.point, bytes(all));
        let [took, rate] = [took, summary.mb_per_s].map(with_ends);
        Some(format!("{point}: {all} in {took} s, {rate} MB/s"))
    };
    points.iter().filter_map(sentence).collect()
}

/// Commands of the other tools, one per line.
fn commands(points: &[Summary]) -> String {
    let peers = points.iter().flat_map(|point| point.peers.values());
    let all: BTreeSet<&str> = peers.map(|peer| peer.command.as_str()).collect();
    all.into_iter().collect::<Vec<_>>().join("\n")
}

/// Reasons to doubt a figure.
fn cautions(ran: &Ran, figures: &Figures) -> Vec<String> {
    let mut all = Vec::new();
    if ran.interrupted {
        all.push("The run was interrupted: points may lack repeats, or be missing".to_owned());
    }
    for summary in &figures.points {
        let point = &summary.point;
        match &summary.verdict {
            Verdict::Failed(why) => all.push(format!("{point} failed: {why}")),
            Verdict::Unknown(why) => all.push(format!("{point} is no evidence about the tier: {why}")),
            Verdict::Saturated => all.push(format!(
                "{point}: the tier did not keep up ({} of {} calls/s, {} unfinished)",
                digits3(summary.iops.value),
                point.rate,
                summary.unfinished
            )),
            Verdict::Valid => {}
        }
        all.extend(summary.drift.iter().map(|drift| format!("{point}: {drift}")));
        if summary.left_out > 0 {
            all.push(format!("{point}: {} disturbed repeats are left out", summary.left_out));
        }
        let faults = summary.peer_faults.iter();
        all.extend(faults.map(|fault| format!("{point}: a peer failed: {fault}")));
    }
    all.extend(figures.peer_notes.iter().cloned());
    all
}

/// Facts about the measurement.
fn facts(ran: &Ran, access: &Access, figures: &Figures) -> Vec<String> {
    let points = figures.points.len();
    let mut facts = vec![
        format!(
            "{points} points, windows of {} s after {} s",
            access.window.as_secs_f64(),
            access.warmup.as_secs_f64()
        ),
        format!("{} of data, seed {}", bytes(access.size), access.seed),
        format!("load average {} at the start", ran.environment.load_average),
    ];
    facts.extend(figures.agents.iter().map(AgentFigures::text));
    facts.extend(ran.environment.filesystems.values().cloned());
    facts
}
