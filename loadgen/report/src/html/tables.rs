//! The tables of the page: what came out, and every point.
//!
//! In: a group. Out: HTML tables. Knows nothing of the figures.

use super::markup::escape;
use super::stages;
use crate::content::best::Best;
use crate::content::group::{Against, Group};
use crate::content::point_row::{Figures, PointRow, Tier};
use crate::content::words;
use crate::units::{NONE, digits3, dollars, latency, percent, rate, thousands};
use tierlab_analysis::curves::Difference;
use tierlab_analysis::record::{Interval, Summary, Verdict};
use tierlab_analysis::validity::littles_law;

/// The curves of a group side by side: highest rate (under the objective, where the run has one), tail at the common rate and
/// against the fastest, cost, and what dominates.
pub(super) fn headline(group: &Group<'_>) -> String {
    let tail = group.tail;
    let common = group
        .common_rps
        .map_or_else(|| "no common rate".to_owned(), |rps| format!("{} rps", rate(rps)));
    // Where nothing above the median is common to all, the median stands once.
    let beside_median = tail.name != "p50";
    let heads: String = [("p50", true), (tail.name, beside_median)]
        .into_iter()
        .filter(|(_, shown)| *shown)
        .map(|(name, _)| format!("<th class=\"n\">{name} at {common}</th>"))
        .collect();
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"brief\"><thead><tr><th>tier</th><th>cache</th><th class=\"n\">{title}</th>\
         {heads}<th class=\"n\">against the fastest</th>\
         <th class=\"n\">$/10k at the highest rate</th><th>slowest requests at {common}</th></tr></thead><tbody>",
        title = escape(&group.best_title)
    );
    for row in &group.rows {
        let against = match &row.against_fastest {
            Against::Fastest => "<td class=\"n best\">fastest</td>".to_owned(),
            Against::Other(difference) => ratio(difference.as_ref()),
        };
        let mut cells = vec![
            ("", tier(&row.tier)),
            ("cache", format!("<td>{}</td>", escape(&row.cache))),
            ("highest rate", highest(row.best.as_ref())),
            ("p50", cell(row.at_common.and_then(|summary| summary.p50_us), latency)),
        ];
        if beside_median {
            cells.push((tail.name, cell(row.at_common.and_then(tail.of), latency)));
        }
        cells.extend([
            ("against the fastest", against),
            ("$/10k there", cost(row.best.as_ref())),
            ("slowest", format!("<td>{}</td>", dominant(row.at_common))),
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

fn ratio(difference: Option<&Difference>) -> String {
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

/// The class of a cell that holds a number.
pub(super) const fn number(is_number: bool) -> &'static str {
    if is_number { " class=\"n\"" } else { "" }
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

/// The tier, with what stands behind it as a badge where that is not the real thing.
fn tier(tier: &Tier) -> String {
    let badge = tier.origin.as_ref().map_or_else(String::new, |origin| {
        format!(
            " <span class=\"badge {kind}\" data-tip=\"{}\">{kind}</span>",
            escape(&origin.says),
            kind = origin.kind
        )
    });
    format!("<td>{}{badge}</td>", escape(&tier.name))
}

/// Every point of a group.
pub(super) fn full(group: &Group<'_>) -> String {
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
    let mut out = String::from("<div class=\"scroll\"><table class=\"full\"><thead><tr>");
    for (name, number) in HEADER {
        out += &format!("<th{}>{name}</th>", self::number(number));
    }
    out += "</tr></thead>";
    for curve in &group.rows {
        out += "<tbody class=\"next\">";
        for point in &curve.points {
            out += &row(point);
        }
        out += "</tbody>";
    }
    out + "</table></div>"
}

fn row(point: &PointRow<'_>) -> String {
    let start = format!(
        "{}<td>{}</td><td class=\"n\">{}</td>",
        tier(&point.tier),
        escape(&point.cache),
        point.offered
    );
    let Some(figures) = &point.figures else {
        return format!("<tr class=\"off\">{start}<td colspan=\"12\">not summarised</td></tr>");
    };
    let summary = figures.summary;
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
        verdict(figures),
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
fn verdict(figures: &Figures<'_>) -> String {
    let word = figures.verdict;
    let tip = if figures.summary.verdict == Verdict::Valid {
        String::new()
    } else {
        format!(" data-tip=\"{}\"", escape(&figures.reasons.join("\n")))
    };
    format!("<td><span class=\"badge {word}\"{tip}>{word}</span></td>")
}
