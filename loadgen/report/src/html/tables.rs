//! The tables of the page: what came out, and every point.
//!
//! In: a group. Out: HTML tables. Knows nothing of the figures.

use super::markup::{interval, number, scroll};
use super::stages;
use crate::content::best::Best;
use crate::content::group::{Against, Group, Row};
use crate::content::point_row::{Figures, Origin, PointRow, Tier, has_goodput};
use crate::content::words;
use crate::units::{NONE, digits3, dollars, latency, percent, rate, thousands};
use maud::{Markup, html};
use tierlab_analysis::curves::Difference;
use tierlab_analysis::record::{Interval, Percentile, Summary, Verdict};
use tierlab_analysis::validity::littles_law;

/// The curves of a group side by side: highest rate (under the objective, where the run has one), tail at the common rate and
/// against the fastest, cost, and what dominates.
pub(super) fn headline(group: &Group<'_>) -> Markup {
    let tail = group.tail;
    let common = group
        .common_rps
        .map_or_else(|| "no common rate".to_owned(), |rps| format!("{} rps", rate(rps)));
    html! {
        (scroll("Curves side by side", &html! {
            table.brief {
                thead {
                    tr {
                        th { "tier" }
                        th { "cache" }
                        th.n { (group.best_title) }
                        th.n { "p50 at " (common) }
                        @if has_tail(group) { th.n { (tail.name) " at " (common) } }
                        th.n { "against the fastest" }
                        th.n { "$/10k at the highest rate" }
                        th { "slowest requests at " (common) }
                    }
                }
                tbody { @for row in &group.rows { (headline_row(group, row)) } }
            }
        }))
    }
}

/// Where nothing above the median is common to all, the median stands once.
fn has_tail(group: &Group<'_>) -> bool {
    group.tail.name != "p50"
}

fn headline_row(group: &Group<'_>, row: &Row<'_>) -> Markup {
    let (tail, best) = (group.tail, row.best.as_ref());
    let told = match &row.against_fastest {
        Against::Other(Some(difference)) => Some(difference),
        Against::Other(None) | Against::Fastest => None,
    };
    let is_fastest = matches!(row.against_fastest, Against::Fastest);
    html! {
        tr {
            td data-label="" { (tier(&row.tier)) }
            td data-label="cache" { (row.cache) }
            td data-label="highest rate" class="n" { (highest(best)) }
            td data-label="p50" class="n" { (figure(row.at_common.and_then(|summary| summary.p50_us), latency)) }
            @if has_tail(group) { td data-label=(tail.name) class="n" { (figure(row.at_common.and_then(tail.of), latency)) } }
            @if is_fastest {
                td data-label="against the fastest" class="n best" { "fastest" }
            } @else {
                td data-label="against the fastest" class="n" data-tip=[told.map(delta)] { (ratio(told)) }
            }
            td data-label="$/10k there" class="n" { (cost(best)) }
            td data-label="slowest" { (dominant(row.at_common)) }
        }
    }
}

/// The highest rate with what is known of the boundary.
fn highest(best: Option<&Best<'_>>) -> Markup {
    let Some(best) = best else { return html! { "none" } };
    html! {
        (best.text())
        @if let Some(ends) = best.interval.filter(|_| !best.at_least) { (interval(&rate(ends.lo), &rate(ends.hi))) }
    }
}

/// What an inference costs at the highest rate.
fn cost(best: Option<&Best<'_>>) -> Markup {
    let usd = best.and_then(|best| best.point.summary.as_ref()?.usd_per_10k);
    html! { @if usd.is_some() { (best.map_or("", Best::at_most)) } (figure(usd, dollars)) }
}

/// A bar for the largest part of the slowest requests, and what dominates in words.
fn dominant(summary: Option<&Summary>) -> Markup {
    let tail = summary.and_then(|summary| summary.tail.as_ref());
    let Some((tail, (part, share))) = tail.and_then(|tail| Some((tail, tail.parts.first()?))) else {
        return html! { (NONE) };
    };
    let is_known = tail.exceeds.is_none();
    let width = if is_known {
        100.0 * share.value.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let (name, percent) = (words::part(part), percent(share.value));
    html! {
        span.share { i style={ (format!("width:{width:.0}%;background:")) (stages::colour(part)) } {} }
        span data-tip=(words::dominance(tail)) {
            @if !is_known { "not known" }
            @else if tail.clear { (percent) " " (name) }
            @else if share.value > 0.5 { (percent) " " (name) ", varies" }
            @else { "several; most " (name) ", " (percent) }
        }
    }
}

/// How many times the fastest's.
fn ratio(difference: Option<&Difference>) -> Markup {
    let Some(difference) = difference else {
        return html! { (NONE) };
    };
    let Interval { value, lo, hi } = difference.ratio;
    html! {
        (digits3(value)) " ×"
        span.ci {
            "[" (digits3(lo)) "–" (digits3(hi)) "]"
            @if !difference.is_significant() { ", not told apart" }
        }
    }
}

/// How much longer than the fastest's.
fn delta(difference: &Difference) -> String {
    let Interval { value, lo, hi } = difference.delta_us;
    let sign = if value < 0.0 { "−" } else { "+" };
    format!("{sign}{} [{} to {}]", latency(value.abs()), latency(lo), latency(hi))
}

/// A figure with its interval, `n/a` where there is none; marked `~` without an upper end.
pub(super) fn figure(of: Option<Interval>, show: fn(f64) -> String) -> Markup {
    html! {
        @if let Some(Interval { value, lo, hi }) = of {
            @if hi.is_finite() { (show(value)) (interval(&show(lo), &show(hi))) }
            @else { "~" (show(value)) @if lo > 0.0 { span.ci { "[≥ " (show(lo)) "]" } } }
        }
        @else { (NONE) }
    }
}

/// The tier, with what stands behind it as a badge where that is not the real thing.
fn tier(tier: &Tier) -> Markup {
    html! {
        (tier.name)
        @if let Some(origin) = &tier.origin { (badge(origin, origin.kind)) }
    }
}

/// What stands behind a tier, all of it on hovering.
pub(super) fn badge(origin: &Origin, label: &str) -> Markup {
    html! { " " span.badge.(origin.kind) data-tip=(origin.says) { (label) } }
}

const GOODPUT: &str = "goodput/s";

/// Every point of a group.
pub(super) fn full(group: &Group<'_>) -> Markup {
    const HEADER: [(&str, bool); 20] = [
        ("tier", false),
        ("cache", false),
        ("offered/s", true),
        ("verdict", false),
        ("p50", true),
        ("p90", true),
        ("p95", true),
        ("p99", true),
        ("p99.9", true),
        ("mean", true),
        ("max", true),
        ("service p99", true),
        ("send lag p99", true),
        ("good/s", true),
        (GOODPUT, true),
        ("inferences/s", true),
        ("hits", true),
        ("errors", true),
        ("in flight", true),
        ("$/10k", true),
    ];
    let has_goodput = has_goodput(group.rows.iter().flat_map(|curve| &curve.points));
    let header = HEADER.into_iter().filter(|(name, _)| has_goodput || *name != GOODPUT);
    html! {
        (scroll("Every point", &html! {
            table.full {
                thead { tr { @for (name, is_number) in header { th class=[number(is_number)] { (name) } } } }
                @for curve in &group.rows {
                    tbody.next { @for point in &curve.points { (row(point, has_goodput)) } }
                }
            }
        }))
    }
}

fn row(point: &PointRow<'_>, has_goodput: bool) -> Markup {
    let figures = point.figures.as_ref();
    let is_valid = figures.is_some_and(|figures| figures.summary.verdict == Verdict::Valid);
    html! {
        tr class=[(!is_valid).then_some("off")] {
            td { (tier(&point.tier)) }
            td { (point.cache) }
            td.n { (point.offered) }
            @if let Some(figures) = figures { (cells(figures, has_goodput)) }
            @else { td colspan="17" { "not summarised" } }
        }
    }
}

fn cells(figures: &Figures<'_>, has_goodput: bool) -> Markup {
    let summary = figures.summary;
    let optional = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| NONE.to_owned(), show);
    html! {
        td { (verdict(figures)) }
        @for percentile in Percentile::ALL { td.n { (figure(summary.percentile(percentile), latency)) } }
        td.n { (figure(summary.mean_us, latency)) }
        td.n { (optional(summary.max_us, latency)) }
        td.n { (optional(summary.service_p99_us, latency)) }
        td.n { (optional(summary.lag_p99_us, latency)) }
        td.n { (figure(Some(summary.achieved_rps), rate)) }
        @if has_goodput { td.n { (figures.goodput()) } }
        td.n { (figure(Some(summary.inferences_per_s), rate)) }
        td.n { (optional(summary.cache_hit_ratio, percent)) }
        td.n { (thousands(summary.errors)) }
        td.n { (in_flight(summary.in_flight)) }
        td.n { (figure(summary.usd_per_10k, dollars)) }
    }
}

/// As counted; what Little's law says is told on hovering.
fn in_flight((counted, by_law): (f64, f64)) -> Markup {
    let is_check = littles_law::holds((counted, by_law)).is_some();
    html! {
        span data-tip={
            "counted " (digits3(counted)) ", by Little's law " (digits3(by_law))
            @if !is_check { " (too few for the law to be a check)" }
        } { (digits3(counted)) }
    }
}

/// The verdict in a word; its reasons are listed below, and told on hovering.
fn verdict(figures: &Figures<'_>) -> Markup {
    let is_valid = figures.summary.verdict == Verdict::Valid;
    let tip = (!is_valid).then(|| figures.reasons.join("\n"));
    html! { span.badge.(figures.verdict) data-tip=[tip] { (figures.verdict) } }
}
