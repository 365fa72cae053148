//! Report of a run of points: the best figures of each family of points, and a table for each, with fio's figures; curves of
//! latency against depth, against the achieved rate, and against the offered rate; cautions, facts.

use crate::peers::FIO;
use crate::plan::{Access, Point, toml_name};
use crate::report::{Column, Page, Part, RunFacts, curves, or_none, pre, table, with_heading};
use crate::runner::agents::AgentFigures;
use crate::runner::record::SecondFigures;
use crate::runner::summary::{Peer, Summary, Verdict};
use crate::runner::{Figures, PointSeconds};
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, amount, bytes, count_of, digits3, latency, percent, spread, thousands};
use tierlab_report::parts::{Axis, Cell, Chart, Figure, Line, Unit};

const COLUMNS: [Column<Summary, Cell>; 19] = [
    ("block", |one| one.point.block_text().into()),
    ("depth", |one| one.point.depth.to_string().into()),
    ("calls/s", |one| spread(&one.iops).into()),
    ("MB/s", |one| if_moves_bytes(one, spread(&one.mb_per_s))),
    ("of best", |one| if_moves_bytes(one, percent(one.share_of_best_mb))),
    ("p50", |one| time(one.p50_us).into()),
    ("p95", |one| time(one.p95_us).into()),
    ("p99", |one| time(one.p99_us).into()),
    ("p99.9", |one| time(one.p999_us).into()),
    ("send lag p99", |one| or_none(one.late_p99_us, latency).into()),
    ("CPU s/GB", |one| {
        or_none(one.cpu_s_per_gb.map(|cpu| cpu.value), digits3).into()
    }),
    ("CPU us", |one| digits3(one.cpu_us_per_call.value).into()),
    ("moved", |one| or_none(one.over_read, digits3).into()),
    ("fetched", |one| or_none(one.fetched_share, digits3).into()),
    ("of fio's", |one| fio(one, |fio| spread(&fio.ratio)).into()),
    ("fio's calls/s", |one| fio(one, |fio| amount(fio.iops.value)).into()),
    ("fio's p50", |one| fio(one, |fio| or_none(fio.p50_us, latency)).into()),
    ("fio's CPU us", |one| {
        fio(one, |fio| or_none(fio.cpu_us_per_call, digits3)).into()
    }),
    ("verdict", |one| {
        Cell::badge(class(one.verdict.name()), one.verdict.name())
    }),
];
const NOTE: &str = "calls/s, MB/s: means over the repeats with their 95 % intervals. of best: share of the best MB/s that any point or fio reached on \
                    the tier in this run. Latencies: of all repeats; n/a: fewer than 10 calls beyond the percentile. send lag: from the due \
                    time to the call, part of the latency; the highest of the repeats. CPU: of the bench's own process, per GB read or \
                    written, and per call. moved: bytes moved by the tier per requested byte. fetched: bytes that the kernel fetched from \
                    storage per requested byte. of fio's: mean ratio of calls/s over the repeats, each paired with fio's run of the same job. \
                    Writes: synced, on the disk at the reply; committed, by the NFS server's COMMIT; acknowledged, durable by the settings of \
                    the server.";

/// Content of the report.
pub(super) fn page<'a>(run: &'a RunFacts, access: &Access, figures: &Figures) -> Page<'a> {
    let points = &figures.points;
    let families = families(points);
    let points_of = |family: &Family| table(&family[0].point.group_text(), &COLUMNS, 0, family);
    let mut curves = curves_of(points).into_iter();
    let first = curves
        .next()
        .map(|(name, figure)| html! { p.chart-title { (name) } (figure) });
    let curves = html! { @for (name, figure) in curves { (with_heading(&name, &figure)) } };
    let seconds = html! { @for (name, figure) in seconds(&figures.seconds) { (with_heading(&name, &figure)) } };
    Page {
        run,
        facts: facts(run, access, figures),
        badges: badges(points),
        findings: std::iter::once(answer(points)).chain(cautions(run, figures)).collect(),
        overview: table("", &FAMILY_COLUMNS, 1, &families),
        chart: first.unwrap_or_default(),
        parts: vec![
            Part::List("Checkpoints", checkpoints(points)),
            Part::Html("Latency", curves),
            Part::Html("Each second", seconds),
            Part::Tables("Every point", families.iter().map(points_of).collect(), NOTE),
            Part::Html("fio's commands", pre(&commands(points))),
        ],
    }
}

/// Points that differ in block and depth alone.
type Family = Vec<Summary>;

/// Best figures of the valid points of a family; each may be of another block and depth.
const FAMILY_COLUMNS: [Column<Family, Cell>; 7] = [
    ("access, best of its points", |all| all[0].point.group_text().into()),
    ("MB/s", |all| rate(highest(all, MB_PER_S))),
    ("calls/s", |all| rate(highest(all, CALLS_PER_S))),
    ("p50", |all| Cell::latency(lowest(all, P50))),
    ("p99", |all| Cell::latency(lowest(all, P99))),
    ("of fio's", |all| Cell::split_or_none(beside_fio(all))),
    ("valid", |all| format!("{}/{}", valid(all).count(), all.len()).into()),
];

/// Returns all families: for each kind of access the fastest first.
fn families(points: &[Summary]) -> Vec<Family> {
    // Points are sorted, with block and depth last.
    let groups = points.chunk_by(|a, b| a.point.group_text() == b.point.group_text());
    let mut families: Vec<Family> = groups.map(<[Summary]>::to_vec).collect();
    let speed = |family: &Family| highest(family, MB_PER_S).or(highest(family, CALLS_PER_S));
    let speed = |family: &Family| speed(family).map_or(0.0, |of| of.value);
    families.sort_by(|a, b| speed(b).total_cmp(&speed(a)));
    families.sort_by_key(|family| (family[0].point.operation, family[0].point.pattern));
    families
}

/// Returns the fastest valid point in a sentence, with the number of points as fast, or else the number of valid points.
fn answer(points: &[Summary]) -> String {
    let moving = || valid(points).filter(|one| one.point.operation.moves_bytes());
    let text = match moving().max_by(|a, b| a.mb_per_s.value.total_cmp(&b.mb_per_s.value)) {
        Some(Summary { point, mb_per_s, .. }) => {
            let (rate, lo) = (spread(mb_per_s), mb_per_s.lo);
            let others = moving().filter(|one| one.mb_per_s.hi >= lo).count().saturating_sub(1);
            format!("{point} moves the most, {rate} MB/s; other points not significantly slower: {others}")
        }
        None => format!("valid points: {} of {}", valid(points).count(), points.len()),
    };
    let fio = beside_fio(points).map(|range| format!("; calls/s are {range} times fio's"));
    text + &fio.unwrap_or_default()
}

fn valid(points: &[Summary]) -> impl Iterator<Item = &Summary> {
    points.iter().filter(|one| one.verdict == Verdict::Valid)
}

/// Highest figure of the valid points.
fn highest(points: &[Summary], of: IntervalOf) -> Option<Interval> {
    valid(points).filter_map(of).max_by(|a, b| a.value.total_cmp(&b.value))
}

/// Lowest figure of the valid points.
fn lowest(points: &[Summary], of: IntervalOf) -> Option<Interval> {
    valid(points).filter_map(of).min_by(|a, b| a.value.total_cmp(&b.value))
}

/// Range of the valid points' ratios to fio's calls per second; `None` without fio.
fn beside_fio(points: &[Summary]) -> Option<String> {
    let ends = [lowest(points, OF_FIO)?, highest(points, OF_FIO)?];
    let [lowest, highest] = ends.map(|of| digits3(of.value));
    Some(format!("{lowest}–{highest}"))
}

fn rate(of: Option<Interval>) -> Cell {
    Cell::split_or_none(of.map(|of| spread(&of)))
}

/// Number of points of each verdict.
fn badges(points: &[Summary]) -> Vec<(&'static str, String)> {
    let badge = |verdict: &'static str| {
        let count = points.iter().filter(|point| point.verdict.name() == verdict).count();
        (count > 0).then(|| (class(verdict), format!("{count} {verdict}")))
    };
    let verdicts = ["valid", "drifts", "saturated", "unknown", "failed"];
    verdicts.into_iter().filter_map(badge).collect()
}

/// Colour of a verdict.
fn class(verdict: &'static str) -> &'static str {
    match verdict {
        "drifts" | "unknown" | "failed" => "invalid",
        verdict => verdict,
    }
}

fn time(us: Option<Interval>) -> String {
    or_none(us.map(|us| us.value), latency)
}

/// Text about the bytes that calls move; `n/a` if they move none.
fn if_moves_bytes(one: &Summary, text: String) -> Cell {
    let moving = Some(text).filter(|_| one.point.operation.moves_bytes());
    moving.unwrap_or_else(|| NONE.to_owned()).into()
}

/// Text about fio's figures of a point; `n/a` without any.
fn fio(one: &Summary, text: fn(&Peer) -> String) -> String {
    one.peers.get(FIO).map_or_else(|| NONE.to_owned(), text)
}

type IntervalOf = fn(&Summary) -> Option<Interval>;
type Coordinate = fn(&Summary) -> f64;
type Series<'a> = BTreeMap<String, Vec<&'a Summary>>;

const P50: IntervalOf = |summary| summary.p50_us;
const P99: IntervalOf = |summary| summary.p99_us;
const CALLS_PER_S: IntervalOf = |summary| Some(summary.iops);
const MB_PER_S: IntervalOf = |summary| summary.point.operation.moves_bytes().then_some(summary.mb_per_s);
const OF_FIO: IntervalOf = |summary| Some(summary.peers.get(FIO)?.ratio);
const DEPTH: Coordinate = |summary| f64::from(summary.point.depth);
const OFFERED: Coordinate = |summary| f64::from(summary.point.rate);
const ACHIEVED: Coordinate = |summary| summary.iops.value;

const CLOSED: &str = "Closed loops: callers wait for their own reads. Whiskers are 95 % intervals over the repeats; hollow markers are \
                      points that are not valid.";
const OPEN: &str = "Open loops: latency counts from when a call was due. Hollow markers are rates that the tier did not sustain, or points \
                    that are not valid.";

const SECONDS: &str = "One repeat after another, without the pauses between them: a rate that falls or a latency that rises within repeats means a \
drive or an account that runs out of credit, or a cache that fills.";

/// Returns the curves over seconds with their headings.
fn seconds(points: &[PointSeconds]) -> Vec<(String, Markup)> {
    let name = |of: &PointSeconds| heading(&of.point);
    let figure = |group: &[PointSeconds]| {
        let rate = |second: &SecondFigures| Some(second.calls as f64);
        let bytes = |second: &SecondFigures| Some(second.mb_per_s);
        let tail = |second: &SecondFigures| second.p99_us;
        let charts = [
            by_second("calls ended each second", ("calls", Unit::Rate), group, rate),
            by_second("MB each second", ("MB/s", Unit::Rate), group, bytes),
            by_second("p99 of each second", ("latency", Unit::Latency), group, tail),
        ];
        let series = |of: &PointSeconds| format!("{}, depth {}", series(&of.point), of.point.depth);
        let charts = charts.into_iter().flatten().collect();
        let figure = Figure::of_names(group.iter().map(series), charts, SECONDS);
        (name(&group[0]), figure.html())
    };
    points.chunk_by(|a, b| name(a) == name(b)).map(figure).collect()
}

/// Draws a figure of each second; `None` if it is always 0, as the bytes of look-ups are.
fn by_second(
    title: &str,
    (name, unit): (&'static str, Unit),
    group: &[PointSeconds],
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
    let lines: Vec<Line> = group.iter().enumerate().map(line).collect();
    let highest = lines.iter().flat_map(|line| &line.y).copied().fold(0.0, f64::max);
    let y = (highest > 0.0).then(|| Axis::linear(name, unit, (0.0, highest * 1.1)))?;
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
        let html = curves_of_group(is_open, &points);
        (!html.0.is_empty()).then_some((name, html))
    };
    groups.into_iter().filter_map(figure).collect()
}

fn heading(point: &Point) -> String {
    let text = format!("{}: {}, {}", point.tier, point.access_text(), point.block_text());
    match point.rate {
        0 => text,
        _ => format!("{text}, at most {} in flight", point.depth),
    }
}

fn series(point: &Point) -> String {
    toml_name(&point.way) + &point.state_text()
}

/// Draws the curves of open loops, or of closed loops; nothing without a curve.
fn curves_of_group(is_open: bool, points: &[&Summary]) -> Markup {
    let mut all = Series::new();
    for summary in points {
        all.entry(series(&summary.point)).or_default().push(summary);
    }
    let offered = ("calls offered per second", Unit::Rate);
    let (in_flight, achieved) = (("calls in flight", Unit::Count), ("calls per second", Unit::Rate));
    let (charts, caption) = match is_open {
        true => {
            let p50 = chart("p50 against rate", offered, &all, OFFERED, P50);
            (vec![p50, chart("p99 against rate", offered, &all, OFFERED, P99)], OPEN)
        }
        false if all.values().all(|points| points.len() < 2) => return Markup::default(),
        false => {
            let p50 = chart("p50 against depth", in_flight, &all, DEPTH, P50);
            let p99 = chart("p99 against depth", in_flight, &all, DEPTH, P99);
            let by_rate = chart("p50 against achieved rate", achieved, &all, ACHIEVED, P50);
            (vec![p50, p99, by_rate], CLOSED)
        }
    };
    let charts = charts.into_iter().flatten().collect();
    Figure::of_names(all.into_keys(), charts, caption).html()
}

/// Draws a chart; `None` without a curve.
fn chart(title: &str, axis: (&'static str, Unit), all: &Series<'_>, x: Coordinate, of: IntervalOf) -> Option<Chart> {
    let line = |(series, points): (usize, &Vec<&Summary>)| {
        let mut line = Line {
            series,
            ..Line::default()
        };
        let at = |summary: &&Summary| Some((x(summary), of(summary)?, summary.verdict == Verdict::Valid));
        let mut values: Vec<_> = points.iter().filter_map(at).filter(|(at, ..)| *at > 0.0).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        values.dedup_by(|a, b| a.0 == b.0);
        for (at, us, is_valid) in values {
            line.push(at, us.value);
            line.lo.push(us.lo);
            line.hi.push(us.hi);
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

/// Returns a sentence for each valid checkpoint and restore.
fn checkpoints(points: &[Summary]) -> Vec<String> {
    let sentence = |summary: &Summary| {
        let took = summary.took_s?;
        // Each agent has all callers of the point.
        let calls = summary.calls / (summary.repeats - summary.left_out) as u64;
        let (point, all) = (&summary.point, bytes(summary.point.block_bytes * calls));
        let [took, rate] = [took, summary.mb_per_s].map(|of| spread(&of));
        Some(format!("{point}: {all} in {took} s, {rate} MB/s"))
    };
    valid(points).filter_map(sentence).collect()
}

/// Commands of the other tools, one per line.
fn commands(points: &[Summary]) -> String {
    let peers = points.iter().flat_map(|point| point.peers.values());
    let all: BTreeSet<&str> = peers.map(|peer| peer.command.as_str()).collect();
    all.into_iter().collect::<Vec<_>>().join("\n")
}

/// Reasons to doubt a figure.
fn cautions(run: &RunFacts, figures: &Figures) -> Vec<String> {
    let mut all = Vec::new();
    if run.interrupted {
        all.push("The run was interrupted: points may lack repeats, or be missing".to_owned());
    }
    let mut unknown: BTreeMap<&str, (&Point, &str, usize)> = BTreeMap::new();
    for summary in &figures.points {
        let point = &summary.point;
        match &summary.verdict {
            Verdict::Failed(why) => all.push(format!("{point} failed: {why}")),
            Verdict::Unknown(why) => {
                // Reasons that differ in their figures alone are one.
                let reason = why.split(char::is_numeric).next().unwrap_or_default();
                unknown.entry(reason).or_insert((point, why.as_str(), 0)).2 += 1;
            }
            Verdict::Saturated => all.push(format!(
                "{point}: the tier did not keep up at this depth ({} of {} calls/s, {} unfinished)",
                amount(summary.iops.value),
                thousands(point.rate.into()),
                summary.unfinished
            )),
            Verdict::Valid | Verdict::Drifts(_) => {}
        }
        all.extend(summary.drift.iter().map(|drift| format!("{point}: {drift}")));
        // Each error names the command, whose seed differs by repeat: one of them stands for all.
        all.extend(summary.peer_faults.first().map(|fault| {
            let count = summary.peer_faults.len();
            format!("{point}: a peer failed (repeats: {count}), such as: {fault}")
        }));
    }
    all.extend(unknown.into_values().map(|(point, why, count)| {
        format!("points that are no evidence about the tier: {count}, such as {point}: {why}")
    }));
    let left_out: usize = figures.points.iter().map(|summary| summary.left_out).sum();
    all.extend((left_out > 0).then(|| format!("disturbed repeats left out: {left_out} (`left_out` in points.csv)")));
    all.extend(figures.peer_notes.iter().cloned());
    all
}

/// Facts about the measurement.
fn facts(run: &RunFacts, access: &Access, figures: &Figures) -> Vec<String> {
    let points = count_of(figures.points.len(), "point");
    let (window, warmup) = (access.window.as_secs_f64(), access.warmup.as_secs_f64());
    let mut facts = vec![
        format!("{points}, windows of {window} s after {warmup} s"),
        format!("{} of data, seed {}", bytes(access.size), access.seed),
        format!("load average {} at the start", run.environment.load_average),
    ];
    facts.extend(figures.agents.iter().map(AgentFigures::text));
    facts.extend(run.environment.filesystems.values().cloned());
    facts
}

#[cfg(test)]
mod tests;
