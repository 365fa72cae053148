//! The cumulative distribution of the latency, drawn so that its tail can be read: shares of the requests on an axis of
//! nines, latency on a logarithmic one.
//!
//! In: the series of a group and the rate to show. Out: a figure. Knows nothing of other figures.

use super::chart::{AREA, Axis, HEIGHT, Scale, WIDTH, frame, log_ticks, tick_label};
use super::markup::escape;
use super::series::{Series, legend};
use crate::units::{latency, rate};
use tierlab_analysis::latency::distribution::cumulative;

/// What the axis of shares is marked at.
const SHARES: [(f64, &str); 6] = [
    (0.0, "0"),
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// A series with its curve at the rate that it is shown at.
struct Shown<'a> {
    series: &'a Series<'a>,
    offered_rps: f64,
    /// Shares of the requests, with the latency in microseconds that they do not exceed.
    curve: Vec<(f64, f64)>,
}

/// The figure of a group, each series at the rate that [`Series::shown_at`] chooses; nothing without a valid point.
pub(super) fn figure(series: &[Series<'_>], common: Option<f64>) -> String {
    let curves: Vec<Shown<'_>> = series
        .iter()
        .filter_map(|series| {
            let point = series.shown_at(common)?;
            let curve = cumulative(point);
            (curve.len() > 1).then_some(Shown {
                series,
                offered_rps: point.factors.offered_rps,
                curve,
            })
        })
        .collect();
    let all = || curves.iter().flat_map(|shown| &shown.curve);
    let low = all().map(|(_, us)| us.max(1.0)).fold(f64::INFINITY, f64::min);
    let high = all().map(|(_, us)| *us).fold(1.0, f64::max);
    let deepest = all().map(|(share, _)| *share).fold(0.0, f64::max);
    if curves.is_empty() {
        return String::new();
    }
    let (left, top, right, bottom) = AREA;
    let (low, high) = (low / 1.1, high * 1.1);
    let x = Scale::new(low, high, true, left + 4.0, right - 8.0);
    let y = Scale::new(0.0, nines(deepest).max(1.0), false, bottom, top);
    let x_ticks: Vec<(f64, String)> = log_ticks(low, high)
        .into_iter()
        .map(|us| (us, tick_label(us)))
        .collect();
    let y_ticks: Vec<(f64, String)> = SHARES
        .iter()
        .filter(|(share, _)| nines(*share) <= nines(deepest).max(1.0) + 0.01)
        .map(|(share, label)| (nines(*share), (*label).to_owned()))
        .collect();
    let mut out = format!(
        "<figure>{}<svg class=\"chart single\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"share of the requests that are as fast as a latency or faster\">{}",
        legend(series),
        frame(
            "share of the requests up to a latency",
            "latency",
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
    for shown in &curves {
        out += &line(shown, &x, &y);
    }
    out + "</svg><figcaption>Each step up the axis is a tenth of the requests above. A curve ends where too few \
           requests are left to tell.</figcaption></figure>"
}

/// How many nines a share has.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

fn line(shown: &Shown<'_>, x: &Scale, y: &Scale) -> String {
    let (one, curve) = (shown.series, &shown.curve);
    let mut path = String::new();
    for (index, (share, us)) in curve.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        path += &format!("{letter}{:.1} {:.1}", x.at(us.max(1.0)), y.at(nines(*share)));
    }
    let mut tip = format!("{} at {} rps", one.label, rate(shown.offered_rps));
    for (share, label) in &SHARES[1..] {
        if let Some((_, us)) = curve.iter().find(|(known, _)| *known >= *share - 1e-9) {
            tip += &format!("\n{label} within {}", latency(*us));
        }
    }
    let (share, us) = curve[curve.len() - 1];
    format!(
        "<g data-series=\"{}\" data-tip=\"{}\"><path class=\"line {}\" stroke=\"{}\" d=\"{path}\"/>{}</g>",
        one.id,
        escape(&tip),
        one.dash(),
        one.colour(),
        one.marker(x.at(us.max(1.0)), y.at(nines(share)), false)
    )
}
