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

const CAPTION: &str = "Bands and whiskers are 95 % intervals. Hollow markers are saturated or invalid points, not to be used as \
                       latencies of their rate, and rough percentiles, which have no upper bound. A ring, with its interval as a bar, is the highest rate that the server held; an arrow is \
                       the knee of the p95; a dashed line across is the objective.";

/// The figure of a group.
pub(super) fn figure(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    let mut rates: Vec<f64> = series
        .iter()
        .flat_map(|one| &one.curve.points)
        .map(|point| point.factors.offered_rps)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let lines: Vec<Vec<Line>> = Percentile::ALL.map(|percentile| lines(series, percentile)).into();
    let all = || lines.iter().flatten();
    let ends = |line: &Line, pick: fn(f64, f64) -> f64, of: fn(&Line) -> &[f64], limit: f64, start: f64| {
        // An interval may reach far out of the chart; what it is drawn for are the values.
        let near = line.y.iter().zip(of(line)).map(|(y, end)| {
            if end.is_infinite() {
                *y
            } else if limit > 1.0 {
                end.min(y * limit)
            } else {
                end.max(y * limit)
            }
        });
        near.fold(start, pick)
    };
    let low = all()
        .map(|line| ends(line, f64::min, |line| &line.lo, 0.05, f64::INFINITY))
        .fold(f64::INFINITY, f64::min);
    let high = all()
        .map(|line| ends(line, f64::max, |line| &line.hi, 20.0, 0.0))
        .fold(0.0, f64::max);
    let (Some(&first), Some(&last)) = (rates.first(), rates.last()) else {
        return Markup::default();
    };
    if !low.is_finite() {
        return html! { p.note { "Too few samples for any percentile." } };
    }
    let is_log = last / first >= 5.0;
    let margin = if is_log { (last / first).powf(0.04) } else { 1.0 };
    let aside = if is_log {
        0.0
    } else {
        (0.04 * (last - first)).max(0.02 * last)
    };
    let charts = Percentile::ALL.into_iter().zip(lines).map(|(percentile, lines)| Chart {
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
        rows: (rates.iter().copied().map(short).collect(), 0.0),
    });
    let charts: Vec<Chart> = charts.collect();
    let is_p99_missing = Percentile::ALL
        .iter()
        .zip(&charts)
        .any(|(percentile, chart)| *percentile == Percentile::P99 && chart.lines.is_empty());
    let missing = if is_p99_missing {
        "No point has a p99: too few requests. "
    } else {
        ""
    };
    Figure::new(series, charts, &format!("{missing}{CAPTION}")).html()
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
