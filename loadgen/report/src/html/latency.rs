//! Latency against offered rate: a panel for the p50 and one for the highest percentile that any point has, on the same
//! logarithmic axis.
//!
//! In: the series of a group. Out: a figure. Knows nothing of other figures.

use super::chart::{AREA, Axis, HEIGHT, Scale, WIDTH, frame, log_ticks, thinned, tick_label};
use super::markup::escape;
use super::series::{Series, legend};
use crate::units::{latency_interval, rate};
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Interval, Point, Summary};

type Percentile = fn(&Summary) -> Option<Interval>;

const MEDIAN: (&str, Percentile) = ("p50", |summary| summary.p50_us);
const TAILS: [(&str, Percentile); 2] = [("p99", |summary| summary.p99_us), ("p95", |summary| summary.p95_us)];

/// The figure of a group.
pub(super) fn figure(series: &[Series<'_>]) -> String {
    let points = || series.iter().flat_map(|one| &one.curve.points);
    let mut rates: Vec<f64> = points().map(|point| point.factors.offered_rps).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let summaries = || points().filter_map(|point| point.summary.as_ref());
    let tail = TAILS
        .iter()
        .find(|(_, of)| summaries().any(|summary| of(summary).is_some()));
    let panels: Vec<(&str, Percentile)> = [MEDIAN].into_iter().chain(tail.copied()).collect();
    let intervals =
        summaries().flat_map(|summary| panels.iter().filter_map(move |(_, percentile)| percentile(summary)));
    let (low, high) = intervals.fold((f64::INFINITY, 0.0_f64), |(low, high), interval| {
        (
            low.min(interval.lo.max(interval.value / 20.0)),
            high.max(interval.hi.min(interval.value * 20.0)),
        )
    });
    let (Some(first), Some(last)) = (rates.first().copied(), rates.last().copied()) else {
        return String::new();
    };
    if !low.is_finite() {
        return "<p class=\"note\">Too few samples for any percentile.</p>".to_owned();
    }
    let (left, top, right, bottom) = AREA;
    let x = Scale::new(first, last, last / first >= 5.0, left + 16.0, right - 12.0);
    let (low, high) = (low.max(1.0) / 1.15, high * 1.15);
    let y = Scale::new(low, high, true, bottom, top);
    let x_ticks: Vec<(f64, String)> = thinned(&rates, &x, 42.0)
        .into_iter()
        .map(|tick| (tick, rate(tick)))
        .collect();
    let y_ticks: Vec<(f64, String)> = log_ticks(low, high)
        .into_iter()
        .map(|tick| (tick, tick_label(tick)))
        .collect();
    let mut out = format!("<figure>{}<div class=\"panels\">", legend(series));
    for &(name, percentile) in &panels {
        out += &format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name} latency against \
             offered rate\">{}",
            frame(
                &format!("{name} latency"),
                "requests offered per second",
                &Axis {
                    scale: &x,
                    ticks: &x_ticks
                },
                &Axis {
                    scale: &y,
                    ticks: &y_ticks
                }
            )
        );
        for one in series {
            out += &curve(one, name, percentile, &x, &y);
        }
        out += "</svg>";
    }
    let missing = match tail {
        Some(("p99", _)) => "",
        _ => "No point has a p99: too few independent samples. ",
    };
    out += &format!("</div><figcaption>{missing}{CAPTION}</figcaption></figure>");
    out
}

const CAPTION: &str = "Whiskers and bands are 95 % intervals. Filled markers are valid points; hollow ones are \
            saturated or invalid and not to be used as latencies of their rate.";

fn curve(one: &Series<'_>, name: &str, percentile: Percentile, x: &Scale, y: &Scale) -> String {
    let drawn: Vec<(&Point, &Summary, Interval)> = one
        .curve
        .points
        .iter()
        .filter_map(|point| point.summary.as_ref().map(|summary| (*point, summary)))
        .filter_map(|(point, summary)| percentile(summary).map(|interval| (point, summary, interval)))
        .collect();
    // An interval may end outside the axis; its drawing ends at the frame.
    let place = |point: &Point, us: f64| (x.at(point.factors.offered_rps), y.at(us).clamp(AREA.1, AREA.3));
    let colour = one.colour();
    let mut out = format!("<g data-series=\"{}\">", one.id);
    for pair in drawn.windows(2) {
        let ((a, _, ia), (b, _, ib)) = (&pair[0], &pair[1]);
        let ((ax, ay), (bx, by)) = (place(a, ia.value), place(b, ib.value));
        let both = is_valid(a) && is_valid(b);
        if both {
            let [(_, a_lo), (_, a_hi), (_, b_lo), (_, b_hi)] =
                [place(a, ia.lo), place(a, ia.hi), place(b, ib.lo), place(b, ib.hi)];
            out += &format!(
                "<path class=\"ci\" fill=\"{colour}\" d=\"M{ax:.1} {a_lo:.1}L{bx:.1} {b_lo:.1}V{b_hi:.1}L{ax:.1} {a_hi:.1}z\"/>"
            );
        }
        let faint = if both { "" } else { " faint" };
        out += &format!(
            "<path class=\"line {}{faint}\" stroke=\"{colour}\" d=\"M{ax:.1} {ay:.1}L{bx:.1} {by:.1}\"/>",
            one.dash()
        );
    }
    for (point, summary, interval) in &drawn {
        let (at, middle) = place(point, interval.value);
        let ((_, lo), (_, hi)) = (place(point, interval.lo), place(point, interval.hi));
        let tip = format!(
            "{} at {} rps\n{name} {}\n{} of {} in time, {}",
            one.label,
            rate(point.factors.offered_rps),
            latency_interval(Some(interval)),
            rate(summary.achieved_rps.value),
            rate(point.factors.offered_rps),
            summary.verdict
        );
        out += &format!(
            "<g data-tip=\"{}\"><path class=\"whisker\" stroke=\"{colour}\" d=\"M{at:.1} {lo:.1}V{hi:.1}\"/>{}</g>",
            escape(&tip),
            one.marker(at, middle, !is_valid(point))
        );
    }
    out + "</g>"
}
