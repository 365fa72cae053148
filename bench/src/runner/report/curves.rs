//! Curves: latency against depth, against the achieved rate, and against the offered rate.

use crate::plan::{Point, word};
use crate::report::curves;
use crate::runner::PointSeconds;
use crate::runner::record::SecondFigures;
use crate::runner::summary::{Summary, Verdict};
use maud::Markup;
use std::collections::BTreeMap;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::bytes;
use tierlab_report::parts::{Axis, Chart, Figure, Line, Unit};

type Of = fn(&Summary) -> Option<Interval>;
type Coordinate = fn(&Summary) -> f64;
type Series<'a> = BTreeMap<String, Vec<&'a Summary>>;

const PERCENTILES: [(&str, Of); 2] = [("p50", |summary| summary.p50_us), ("p99", |summary| summary.p99_us)];

const CLOSED: &str = "Closed loops: callers wait for their own reads. Whiskers are 95 % intervals over the repeats; hollow markers are \
                      points that are not valid.";
const OPEN: &str = "Open loops: latency counts from when a call was due. Hollow markers are rates that the tier did not hold, or points \
                    that are not valid.";

const SECONDS: &str = "One repeat after another, without the pauses between them: a rate that falls or a latency that rises within repeats is a \
                       drive or an account that runs out of credit, or a cache that fills.";

/// Returns the curves of each second with their headings.
pub(super) fn seconds(points: &[PointSeconds]) -> Vec<(String, Markup)> {
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
pub(super) fn figures(points: &[Summary]) -> Vec<(String, Markup)> {
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
    charts.extend(chart("p50 against what was reached", reached, &all, iops, p50));
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
