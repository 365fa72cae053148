//! Latency against offered rate: a chart for each percentile that any point has, on the same logarithmic axis.
//!
//! In: a group and its series. Out: a figure. Knows nothing of other figures.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::series::Series;
use crate::content::group::Group;
use crate::content::words;
use maud::{Markup, html};
use tierlab_analysis::curves::{is_valid, knee};
use tierlab_analysis::record::{Grade, Percentile};

const CAPTION: &str = "Point at a curve for its 95 % intervals. Hollow markers are saturated or invalid points, not to be used as \
                       latencies of their rate, and rough percentiles, which have no upper bound. A ring, with its interval as a bar, is the highest rate that the server held; an arrow is \
                       the knee of the p95; a dashed line across is the objective.";

/// The figure of a group: every percentile.
pub(super) fn figure(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    let lines = Percentile::ALL.map(|percentile| (percentile, lines(series, percentile)));
    let charts = charts(group, lines.into());
    if charts.iter().all(|chart| chart.lines.is_empty()) {
        return html! { p.note { "Too few samples for any percentile." } };
    }
    Figure::new(series, charts, CAPTION).html()
}

/// The percentile that the run is about: that of its objective, or else the highest of p99, p95 and p50 that any point has.
pub(super) fn tail(group: &Group<'_>, series: &[Series<'_>]) -> Option<Chart> {
    let of_objectives = group.objectives.iter().filter_map(|objective| objective.percentile());
    let wanted = of_objectives.chain([Percentile::P99, Percentile::P95, Percentile::P50]);
    let mut drawn = wanted.map(|percentile| (percentile, lines(series, percentile)));
    let tail = drawn.find(|(_, lines)| !lines.is_empty())?;
    let mut chart = charts(group, vec![tail]).pop()?;
    chart.title += " against rate";
    // The objective's line belongs to the picture.
    let limits = chart.limits.iter().map(|(limit, _)| *limit);
    chart.y.range.1 = limits.map(|limit| limit * 1.3).fold(chart.y.range.1, f64::max);
    Some(chart)
}

/// A chart for each percentile, on the same axes.
fn charts(group: &Group<'_>, lines: Vec<(Percentile, Vec<Line>)>) -> Vec<Chart> {
    let all = || lines.iter().flat_map(|(_, lines)| lines);
    let mut rates: Vec<f64> = all().flat_map(|line| &line.x).copied().collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let (low, high) = ends(all());
    let (Some(&first), Some(&last)) = (rates.first(), rates.last()) else {
        return Vec::new();
    };
    let is_log = last / first >= 5.0;
    let margin = if is_log { (last / first).powf(0.04) } else { 1.0 };
    let aside = if is_log {
        0.0
    } else {
        (0.04 * (last - first)).max(0.02 * last)
    };
    let chart = |(percentile, lines): (Percentile, Vec<Line>)| Chart {
        title: format!("{percentile} latency"),
        x: Axis {
            name: "requests offered per second",
            unit: Unit::Rate,
            log: is_log,
            range: (first / margin - aside, last * margin + aside),
        },
        y: Axis {
            name: "latency",
            unit: Unit::Latency,
            log: true,
            range: (low.max(1.0) / 1.15, high * 1.15),
        },
        lines,
        here: None,
        limits: limits(group, percentile),
        crosses: Vec::new(),
        rows: (rates.clone(), 0.0),
    };
    lines.into_iter().map(chart).collect()
}

/// Least and most that is drawn. An interval may reach far out of the chart; the values decide.
fn ends<'a>(lines: impl Iterator<Item = &'a Line>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for line in lines {
        for ((y, lo), hi) in line.y.iter().zip(&line.lo).zip(&line.hi) {
            low = low.min(lo.max(y * 0.05));
            high = high.max(if hi.is_infinite() { *y } else { hi.min(y * 20.0) });
        }
    }
    (low, high)
}

fn limits(group: &Group<'_>, percentile: Percentile) -> Vec<(f64, String)> {
    let objectives = group.objectives.iter();
    let mine = objectives.filter(|objective| objective.quantile() == Some(percentile.quantile()));
    mine.filter_map(|objective| Some((objective.limit_us()?, objective.to_string())))
        .collect()
}

fn lines(series: &[Series<'_>], percentile: Percentile) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let mut line = Line {
            series: index,
            highest: one.highest.map(|rps| (short(rps.value), short(rps.lo), short(rps.hi))),
            knee: knee::knee(one.curve).map(short),
            ..Line::default()
        };
        for point in &one.curve.points {
            let Some(summary) = &point.summary else { continue };
            let Some(us) = summary.percentile(percentile) else {
                continue;
            };
            line.push(point.factors.offered_rps, us.value);
            line.lo.push(short(us.lo));
            line.hi.push(short(us.hi));
            line.off.push(if !is_valid(point) {
                words::verdict(&summary.verdict)
            } else if summary.grade(percentile) == Some(Grade::Rough) {
                "rough"
            } else {
                ""
            });
        }
        if !line.x.is_empty() {
            lines.push(line);
        }
    }
    lines
}
