//! Charts of latency: each percentile against the rate, the whole distribution, and the charts that a page opens with.
//!
//! In: a group and its series. Out: figures.

use super::chart::{Axis, Chart, Figure, Line, Series, Unit, short};
use crate::content::answer::{AnswerText, DEMAND_FACTORS};
use crate::content::group::Group;
use crate::content::labels;
use crate::units::rate;
use maud::{Markup, html};
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::latency::distribution::cumulative;
use tierlab_analysis::record::{Grade, Percentile};

/// Tail against the rate, beside it the month against the demand, if there are prices and a demand.
pub(super) fn leading(answer: Option<&AnswerText>, group: &Group<'_>) -> Markup {
    let series = Series::of(group);
    let tail = tail(group, &series);
    let months = answer.and_then(|answer| over_demand(answer, &series));
    let charts: Vec<Chart> = tail.into_iter().chain(months).collect();
    let mut figure = Figure::new(&series, charts, CAPTION);
    figure.is_leading = true;
    figure.html()
}

/// Dollars a month over the demand; `None` without prices or a demand.
fn over_demand(answer: &AnswerText, series: &[Series<'_>]) -> Option<Chart> {
    let peak_rps = answer.peak_rps?;
    let mut lines = Vec::new();
    for (variant, months) in &answer.months {
        let mut labels = series.iter().map(|one| one.curve.factors().label());
        if let Some(index) = labels.position(|label| label == variant) {
            lines.push(Line::through(index, months.iter().copied()));
        }
    }
    let rates = extent(lines.iter().flat_map(|line| &line.x));
    let (least, most) = extent(lines.iter().flat_map(|line| &line.y));
    (!lines.is_empty()).then(|| Chart {
        title: "Cost against demand".to_owned(),
        x: Axis::logarithmic("requests per second at the peak", Unit::Rate, rates),
        y: Axis::logarithmic("dollars a month", Unit::Dollars, (least / 1.15, most * 1.15)),
        here: Some((short(peak_rps), format!("{}/s", rate(peak_rps)))),
        rows: (DEMAND_FACTORS.map(|times| short(times * peak_rps)).to_vec(), 0.0),
        lines,
        ..Chart::default()
    })
}

const CAPTION: &str = "Point at a curve for its 95 % intervals. Hollow markers are saturated or invalid points, which are not latencies of \
                       their rate, and rough percentiles, which have no upper bound. A ring, with its interval as a bar, is the highest \
                       rate that the server held; an arrow is \
                       the knee of the p95; a dashed line across is the objective.";

/// Latency against offered rate: a chart for each percentile that any point has, on the same logarithmic axis.
pub(super) fn percentiles(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    let lines = Percentile::ALL.map(|percentile| (percentile, lines(series, percentile)));
    let charts = charts(group, lines.into());
    if charts.iter().all(|chart| chart.lines.is_empty()) {
        return html! { p.note { "Too few samples for any percentile." } };
    }
    Figure::new(series, charts, CAPTION).html()
}

/// Chart of the objective's percentile, or else of the highest of p99, p95 and p50 that any point has.
fn tail(group: &Group<'_>, series: &[Series<'_>]) -> Option<Chart> {
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
    let (margin, aside) = match is_log {
        true => ((last / first).powf(0.04), 0.0),
        false => (1.0, (0.04 * (last - first)).max(0.02 * last)),
    };
    // Room for the markers of the lowest and the highest value.
    let room = (high / low.max(1.0)).powf(0.04).max(1.15);
    let chart = |(percentile, lines): (Percentile, Vec<Line>)| Chart {
        title: format!("{percentile} latency"),
        x: Axis {
            name: "requests offered per second",
            unit: Unit::Rate,
            log: is_log,
            range: (first / margin - aside, last * margin + aside),
        },
        y: Axis::logarithmic("latency", Unit::Latency, (low.max(1.0) / room, high * room)),
        lines,
        limits: limits(group, percentile),
        rows: (rates.clone(), 0.0),
        ..Chart::default()
    };
    lines.into_iter().map(chart).collect()
}

/// Least and largest of some values, which are at least 0.
fn extent<'a>(values: impl Iterator<Item = &'a f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (value.min(low), value.max(high))
    })
}

/// Least and largest drawn value. An interval may reach far out of the chart; the values decide.
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
    let objectives = group.objectives.iter().filter(|objective| objective.stream().is_none());
    let own = objectives.filter(|objective| objective.quantile() == Some(percentile.quantile()));
    own.map(|objective| (objective.limit_us(), objective.to_string()))
        .collect()
}

fn lines(series: &[Series<'_>], percentile: Percentile) -> Vec<Line> {
    let mut lines = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let highest = one.row.highest;
        let mut line = Line {
            series: index,
            highest: highest.map(|rps| (short(rps.value), short(rps.lo), short(rps.hi))),
            knee: one.curve.knee().map(short),
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
            line.off.push(match summary.grade(percentile) {
                _ if !is_valid(point) => labels::verdict(&summary.verdict),
                Some(Grade::Rough) => "rough",
                _ => "",
            });
        }
        if !line.x.is_empty() {
            lines.push(line);
        }
    }
    lines
}

/// Shares with a row in the table.
const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

const SHARES_CAPTION: &str = "Each step to the right leaves out nine tenths of the remaining requests. A curve ends where too few requests remain.";

/// Distribution of the latency, drawn so that its tail can be read: shares of the requests on an axis of nines, latency on a
/// logarithmic one. Each series at the rate that [`Series::shown_at`] chooses; nothing without a valid point.
pub(super) fn distribution(series: &[Series<'_>], common: Option<f64>) -> Markup {
    let mut lines = Vec::new();
    for (index, one) in series.iter().enumerate() {
        let Some(point) = one.shown_at(common) else { continue };
        let curve = cumulative(point).into_iter();
        let line = Line::through(index, curve.map(|(share, us)| (nines(share), us.max(1.0))));
        if line.x.len() > 1 {
            lines.push(line);
        }
    }
    let (low, high) = extent(lines.iter().flat_map(|line| &line.y));
    let deepest = extent(lines.iter().flat_map(|line| &line.x)).1.max(1.0);
    let rows = SHARES.iter().map(|share| nines(*share));
    let chart = Chart {
        title: "latency that a share of the requests does not exceed".to_owned(),
        x: Axis::linear("share of the requests", Unit::Nines, (0.0, deepest)),
        y: Axis::logarithmic("latency", Unit::Latency, (low / 1.1, high.max(1.0) * 1.1)),
        rows: (rows.filter(|nines| *nines <= deepest + 0.01).collect(), 0.06),
        lines,
        ..Chart::default()
    };
    Figure::new(series, vec![chart], SHARES_CAPTION).html()
}

/// Number of nines of a share.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}
