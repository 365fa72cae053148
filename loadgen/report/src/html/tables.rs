//! The tables of the page: what came out, and every point.
//!
//! In: a run, its groups and their series. Out: HTML tables. Knows nothing of the figures.

use super::markup::escape;
use super::series::Series;
use super::stages;
use crate::content::best::{self, Best};
use crate::content::{percentiles, words};
use crate::units::{NONE, digits3, dollars, latency, percent, rate, thousands};
use tierlab_analysis::curves::{Difference, difference};
use tierlab_analysis::record::{Interval, Point, Run, Summary, Verdict};
use tierlab_analysis::statistics::sections::Pairing;
use tierlab_analysis::validity::littles_law;

/// The series of a group side by side: highest rate (under the objective, where the run has one), tail at the common rate and against the fastest, cost, and
/// what dominates.
pub(super) fn headline(run: &Run, series: &[Series<'_>], common: Option<f64>) -> String {
    let at_common: Vec<Option<&Point>> = series
        .iter()
        .map(|one| common.and_then(|rps| one.curve.valid_at(rps)))
        .collect();
    let (name, quantile, percentile) = percentiles::highest(&at_common);
    let us = |point: &Point| point.summary.as_ref().and_then(percentile);
    let fastest = at_common
        .iter()
        .flatten()
        .filter_map(|point| us(point).map(|interval| (*point, interval.value)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(point, _)| point);
    let common = common.map_or_else(|| "no common rate".to_owned(), |rps| format!("{} rps", rate(rps)));
    // Where nothing above the median is common to all, the median stands once.
    let beside_median = name != "p50";
    let heads: String = [("p50", true), (name, beside_median)]
        .into_iter()
        .filter(|(_, shown)| *shown)
        .map(|(name, _)| format!("<th class=\"n\">{name} at {common}</th>"))
        .collect();
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"brief\"><thead><tr><th>tier</th><th>cache</th><th class=\"n\">{title}</th>\
         {heads}<th class=\"n\">against the fastest</th>\
         <th class=\"n\">$/10k at the highest rate</th><th>slowest requests at {common}</th></tr></thead><tbody>",
        title = escape(&best::title(run))
    );
    for (one, point) in series.iter().zip(&at_common) {
        let factors = one.curve.factors();
        let summary = point.and_then(|point| point.summary.as_ref());
        let against = match (point, fastest) {
            (Some(point), Some(fastest)) if !std::ptr::eq(*point, fastest) => {
                ratio(difference(fastest, point, quantile, Pairing::ByRepeat))
            }
            (Some(point), Some(_)) if us(point).is_some() => "<td class=\"n best\">fastest</td>".to_owned(),
            _ => none(),
        };
        let tier = format!("<td>{}{}</td>", escape(&factors.tier), origin_badge(run, &factors.tier));
        let mut cells = vec![
            ("", tier),
            ("cache", format!("<td>{}</td>", escape(&words::cache(factors)))),
            ("highest rate", highest(one.best.as_ref())),
            ("p50", cell(summary.and_then(|summary| summary.p50_us), latency)),
        ];
        if beside_median {
            cells.push((name, cell(summary.and_then(percentile), latency)));
        }
        cells.extend([
            ("against the fastest", against),
            ("$/10k there", cost(one.best.as_ref())),
            ("slowest", format!("<td>{}</td>", dominant(summary))),
        ]);
        out += "<tr>";
        for (label, cell) in cells {
            out += &cell.replacen("<td", &format!("<td data-label=\"{label}\""), 1);
        }
        out += "</tr>";
    }
    out + "</tbody></table></div>"
}

/// The highest rate with what is known of the boundary.
fn highest(best: Option<&Best<'_>>) -> String {
    let Some(best) = best else {
        return "<td class=\"n\">none</td>".to_owned();
    };
    let interval = best
        .interval
        .filter(|_| !best.at_least)
        .map_or_else(String::new, |interval| {
            format!(
                "<span class=\"ci\">[{}–{}]</span>",
                rate(interval.lo),
                rate(interval.hi)
            )
        });
    format!("<td class=\"n\">{}{interval}</td>", escape(&best.text()))
}

/// What an inference costs at the highest rate.
fn cost(best: Option<&Best<'_>>) -> String {
    let usd = best.and_then(|best| Some((best.at_most(), best.point.summary.as_ref()?.usd_per_10k?)));
    usd.map_or_else(none, |(at_most, usd)| {
        let [value, lo, hi] = [usd.value, usd.lo, usd.hi].map(dollars);
        format!("<td class=\"n\">{at_most}{value}<span class=\"ci\">[{lo}–{hi}]</span></td>")
    })
}

/// A bar for the largest part of the slowest requests, and what dominates in words.
fn dominant(summary: Option<&Summary>) -> String {
    let Some(tail) = summary.and_then(|summary| summary.tail.as_ref()) else {
        return NONE.to_owned();
    };
    let Some((part, share)) = tail.parts.first() else {
        return NONE.to_owned();
    };
    format!(
        "<span class=\"share\"><i style=\"width:{:.0}%;background:{}\"></i></span><span data-tip=\"{}\">{}</span>",
        if tail.exceeds.is_some() {
            0.0
        } else {
            100.0 * share.value.clamp(0.0, 1.0)
        },
        stages::colour(part),
        escape(&words::dominance(tail)),
        if tail.exceeds.is_some() {
            "not known".to_owned()
        } else if tail.clear {
            format!("{} {}", percent(share.value), escape(words::part(part)))
        } else if share.value > 0.5 {
            format!("{} {}, varies", percent(share.value), escape(words::part(part)))
        } else {
            format!("several; most {}, {}", escape(words::part(part)), percent(share.value))
        }
    )
}

fn ratio(difference: Option<Difference>) -> String {
    difference.map_or_else(none, |difference| {
        let Difference { ratio, delta_us, .. } = difference;
        let sign = if delta_us.value < 0.0 { "−" } else { "+" };
        let told = if difference.is_significant() {
            ""
        } else {
            ", not told apart"
        };
        format!(
            "<td class=\"n\" data-tip=\"{sign}{} [{} to {}]\">{} ×<span class=\"ci\">[{}–{}]{told}</span></td>",
            latency(delta_us.value.abs()),
            latency(delta_us.lo),
            latency(delta_us.hi),
            digits3(ratio.value),
            digits3(ratio.lo),
            digits3(ratio.hi)
        )
    })
}

fn none() -> String {
    format!("<td class=\"n\">{NONE}</td>")
}

fn cell(interval: Option<Interval>, show: fn(f64) -> String) -> String {
    interval.map_or_else(none, |interval| {
        let (lo, hi) = (show(interval.lo), show(interval.hi));
        format!(
            "<td class=\"n\">{}<span class=\"ci\">[{lo}–{hi}]</span></td>",
            show(interval.value)
        )
    })
}

/// What stands behind a tier, as a badge where it is not the real thing.
fn origin_badge(run: &Run, tier: &str) -> String {
    let text = run.environment.origins.get(tier).map_or("", String::as_str);
    let kind = ["emulated", "embedded"].into_iter().find(|kind| text.contains(kind));
    kind.map_or_else(String::new, |kind| {
        format!(
            " <span class=\"badge {kind}\" data-tip=\"{}\">{kind}</span>",
            escape(text)
        )
    })
}

/// Every point of a group.
pub(super) fn full(run: &Run, series: &[Series<'_>]) -> String {
    const HEADER: [(&str, bool); 15] = [
        ("tier", false),
        ("cache", false),
        ("offered/s", true),
        ("verdict", false),
        ("p50", true),
        ("p95", true),
        ("p99", true),
        ("service p99", true),
        ("send lag p99", true),
        ("good/s", true),
        ("inferences/s", true),
        ("hits", true),
        ("errors", true),
        ("in flight", true),
        ("$/10k", true),
    ];
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for (name, number) in HEADER {
        out += &format!("<th{}>{name}</th>", if number { " class=\"n\"" } else { "" });
    }
    out += "</tr></thead>";
    for one in series {
        out += "<tbody class=\"next\">";
        for point in &one.curve.points {
            out += &row(run, point);
        }
        out += "</tbody>";
    }
    out + "</table></div>"
}

fn row(run: &Run, point: &Point) -> String {
    let factors = &point.factors;
    let start = format!(
        "<td>{}{}</td><td>{}</td><td class=\"n\">{}</td>",
        escape(&factors.tier),
        origin_badge(run, &factors.tier),
        escape(&words::cache(factors)),
        rate(factors.offered_rps)
    );
    let Some(summary) = &point.summary else {
        return format!("<tr class=\"off\">{start}<td colspan=\"12\">not summarised</td></tr>");
    };
    let number = |text: String| format!("<td class=\"n\">{text}</td>");
    let optional = |value: Option<f64>, show: fn(f64) -> String| number(value.map_or_else(|| NONE.to_owned(), show));
    let per_second = |per_s: f64| rate(per_s);
    let off = if summary.verdict == Verdict::Valid {
        ""
    } else {
        " class=\"off\""
    };
    format!(
        "<tr{off}>{start}{}{}{}{}{}{}{}{}{}{}{}{}</tr>",
        verdict(&summary.verdict),
        cell(summary.p50_us, latency),
        cell(summary.p95_us, latency),
        cell(summary.p99_us, latency),
        optional(summary.service_p99_us, latency),
        optional(summary.lag_p99_us, latency),
        cell(Some(summary.achieved_rps), per_second),
        cell(Some(summary.inferences_per_s), per_second),
        optional(summary.cache_hit_ratio, percent),
        number(thousands(summary.errors)),
        number(format!(
            "<span data-tip=\"counted {}, by Little's law {}{}\">{}</span>",
            digits3(summary.in_flight.0),
            digits3(summary.in_flight.1),
            littles_law::holds(summary.in_flight).map_or(" (too few for the law to be a check)", |_| ""),
            digits3(summary.in_flight.0)
        )),
        cell(summary.usd_per_10k, dollars)
    )
}

/// The verdict in a word; its reasons are listed below, and told on hovering.
fn verdict(verdict: &Verdict) -> String {
    let word = words::verdict(verdict);
    let tip = match verdict {
        Verdict::Valid => String::new(),
        Verdict::Saturated(reasons) | Verdict::Invalid(reasons) => {
            format!(" data-tip=\"{}\"", escape(&reasons.join("\n")))
        }
    };
    format!("<td><span class=\"badge {word}\"{tip}>{word}</span></td>")
}
