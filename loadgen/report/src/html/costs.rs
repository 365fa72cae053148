//! Costs: dollars per 10,000 inferences of each series at its highest rate by part, each series on several instances, and the tiers
//! over the hit ratio of a cache.
//!
//! In: a group and its series. Out: figures and a table.

use super::chart::{Axis, Chart, Figure, Line, Series, SeriesStyle, Unit, short};
use super::markup::{findings, table};
use super::stages::swatch;
use crate::content::best::Best;
use crate::content::costs::{Costs, OverHitRatio, SIDE_BY_SIDE};
use crate::content::group::Group;
use crate::units::{dollars, dollars_interval, percent, rate};
use maud::{Markup, html};
use tierlab_analysis::costs::economics::{BreakEven, CostLine, break_even};
use tierlab_analysis::record::Interval;

/// Costs of a group; nothing without prices.
pub(super) fn of_group(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    html! {
        (figure(series))
        (findings(&group.mix_shares))
        @if let Some(Costs { on_instances, over_hit_ratio, break_evens }) = &group.costs {
            @if let Some(on_instances) = on_instances {
                (table(on_instances, ""))
                p.note { "$/10k inferences. " (SIDE_BY_SIDE) }
            }
            @if let Some(over) = over_hit_ratio { (over_hits(over, break_evens, series)) }
        }
    }
}

/// Parts of the cost with their colours.
const PARTS: [(&str, &str); 5] = [
    ("compute", "var(--p-infer)"),
    ("cache memory", "var(--p-batch)"),
    ("tier capacity", "var(--p-decode)"),
    ("storage requests", "var(--p-tier)"),
    ("bytes", "var(--p-join)"),
];

/// Highest rate of a series, with the parts of its cost and their sum.
type Bar<'a> = (&'a Best<'a>, &'a [(String, f64)], Interval);

/// Bar of a series; `None` without a price.
fn bar<'a>(one: &'a Series<'_>) -> Option<Bar<'a>> {
    let best = one.row.best.as_ref()?;
    let summary = best.point.summary.as_ref()?;
    Some((best, summary.usd_parts.as_slice(), summary.usd_per_10k?))
}

/// Costs at the highest rate; nothing without prices.
fn figure(series: &[Series<'_>]) -> Markup {
    let bars = series.iter().filter_map(|one| Some((&one.style.label, bar(one)?)));
    let bars: Vec<(&String, Bar<'_>)> = bars.collect();
    let ends = bars.iter().map(|(_, (.., usd))| usd.hi.min(usd.value * 3.0));
    let most = ends.fold(0.0, f64::max);
    if most <= 0.0 {
        return Markup::default();
    }
    let is_paid = |name: &str| {
        let mut parts = bars.iter().flat_map(|(_, (_, parts, _))| *parts);
        parts.any(|(part, _)| part == name)
    };
    html! {
        figure {
            div.legend {
                @for (name, colour) in PARTS.iter().filter(|(name, _)| is_paid(name)) { span { (swatch(colour)) (name) } }
            }
            div.costs { @for (label, bar) in &bars { (row(label, bar, most)) } }
            figcaption {
                "Dollars per 10,000 inferences at each series' highest rate; the thin line is the 95 % interval. At most: the server held \
                 even the plan's highest rate, and a higher one would cost less."
            }
        }
    }
}

/// Bar of the parts; `most` has the full width.
fn row(label: &str, (best, parts, usd): &Bar<'_>, most: f64) -> Markup {
    let (lo, hi) = (100.0 * usd.lo / most, 100.0 * usd.hi.min(most) / most);
    html! {
        span { (label) br; span.soft { "at " (best.text()) } }
        div.bar {
            @for (name, part) in *parts {
                @let entry = PARTS.iter().find(|(entry, _)| entry == name);
                @let colour = entry.map_or("#777", |(_, colour)| colour);
                i style=(format!("width:{:.2}%;background:{colour}", 100.0 * part / most)) data-tip={
                    (name) ": " (dollars(*part)) " of " (dollars(usd.value)) " (" (percent(part / usd.value)) ")"
                } {}
            }
            b style=(format!("left:{lo:.2}%;width:{:.2}%", hi - lo)) {}
        }
        span { (best.bound()) (dollars_interval(Some(usd))) }
    }
}

/// Costs of the tiers over the hit ratio, their crossings, and the same in words.
fn over_hits(over: &OverHitRatio, sentences: &[String], series: &[Series<'_>]) -> Markup {
    let index = |line: &CostLine| series.iter().position(|one| one.curve.factors().label() == line.tier);
    let drawn = over.lines.iter().filter_map(|line| Some(drawn(index(line)?, line)));
    let lines: Vec<Line> = drawn.collect();
    let most = lines.iter().flat_map(|line| &line.y).copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return Markup::default();
    }
    let crosses = over.lines.split_first().map_or_else(Vec::new, |(winner, others)| {
        let cross = |other: &CostLine| match break_even(winner, other) {
            BreakEven::At { hit_ratio, .. } => Some((short(hit_ratio.value), short(winner.at(hit_ratio.value)))),
            _ => None,
        };
        others.iter().filter_map(cross).collect()
    });
    let chart = Chart {
        title: format!("$/10k over the hit ratio of a cache, at {} rps", rate(over.rps)),
        x: Axis::linear("hit ratio", Unit::Share, (0.0, 1.0)),
        y: Axis::linear("dollars per 10,000 inferences", Unit::Dollars, (0.0, most * 1.08)),
        lines,
        crosses,
        rows: ((0..=4).map(|quarter| f64::from(quarter) / 4.0).collect(), 0.011),
        ..Chart::default()
    };
    // A line belongs to a tier in all cache states.
    let style = |one: &Series<'_>| SeriesStyle {
        label: one.row.tier.printed.clone(),
        ..one.style.clone()
    };
    let styles = series.iter().map(style).collect();
    html! {
        (Figure::of(styles, vec![chart], NOTE).html())
        (findings(sentences))
    }
}

const NOTE: &str = "Each tier is on the cheapest instance that supports it. The cost of a miss is measured in each cache state, and the \
                    line passes through these states. The cache's memory is part of the instance. Circles: the tier costs the same as the \
                    winner.";

/// Pieces of a line.
const STEPS: u32 = 100;

fn drawn(series: usize, of: &CostLine) -> Line {
    let hit_ratios = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
    Line::through(series, hit_ratios.map(|hit_ratio| (hit_ratio, of.at(hit_ratio))))
}
