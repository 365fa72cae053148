//! Costs side by side: each series on every instance, and the tiers over the hit ratio of a cache.
//!
//! In: a group and its series. Out: a table and a figure. Knows nothing of other figures.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::markup::{interval, scroll};
use super::series::Series;
use crate::content::costs::{CostRow, Costs, OverHitRatio, SIDE_BY_SIDE};
use crate::content::group::Group;
use crate::units::{NONE, digits3, dollars, rate};
use maud::{Markup, html};
use tierlab_analysis::costs::economics::{self, BreakEven, break_even};

/// Both; nothing without prices.
pub(super) fn of_group(group: &Group<'_>, series: &[Series<'_>]) -> Markup {
    html! {
        @if let Some(costs) = &group.costs {
            (instances(costs))
            @if let Some(over) = &costs.over_hit_ratio { (break_evens(over, &costs.break_evens, series)) }
        }
    }
}

/// Each series at its best rate on every instance that is considered; nothing with fewer than two.
fn instances(costs: &Costs<'_>) -> Markup {
    if costs.instances.len() < 2 || costs.rows.is_empty() {
        return Markup::default();
    }
    html! {
        (scroll("Costs by instance", &html! {
            table {
                thead {
                    tr {
                        th { "tier" }
                        th { "cache" }
                        th.n { "at" }
                        @for instance in &costs.instances {
                            th.n {
                                (instance.name)
                                span.ci { "$" (digits3(instance.usd_per_hour)) "/h" @if !instance.checked { ", unchecked" } }
                            }
                        }
                    }
                }
                tbody { @for row in &costs.rows { (cost_row(row)) } }
            }
        }))
        p.note { "$/10k inferences. " (SIDE_BY_SIDE) }
    }
}

fn cost_row(row: &CostRow<'_>) -> Markup {
    html! {
        tr {
            td { (row.tier) }
            td { (row.cache) }
            td.n { (row.best.text()) }
            @for usd in &row.on {
                td.n {
                    @if let Some(usd) = usd {
                        (row.best.at_most()) (dollars(usd.value)) (interval(&digits3(usd.lo), &digits3(usd.hi)))
                    } @else {
                        (NONE)
                    }
                }
            }
        }
    }
}

/// What the tiers cost over the hit ratio, where they cross, and the same in words.
fn break_evens(over: &OverHitRatio, sentences: &[String], series: &[Series<'_>]) -> Markup {
    let looks = |line: &economics::Line| series.iter().position(|one| one.curve.factors().label() == line.tier);
    let lines: Vec<Line> = over
        .lines
        .iter()
        .filter_map(|line| Some(drawn(looks(line)?, line)))
        .collect();
    let most = lines.iter().flat_map(|line| &line.y).copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return Markup::default();
    }
    let crosses = over.lines.split_first().map_or_else(Vec::new, |(winner, others)| {
        let cross = |other: &economics::Line| match break_even(winner, other) {
            BreakEven::At { hit_ratio, .. } => Some((short(hit_ratio.value), short(winner.at(hit_ratio.value)))),
            _ => None,
        };
        others.iter().filter_map(cross).collect()
    });
    let chart = Chart {
        title: format!("$/10k over the hit ratio of a cache, at {} rps", rate(over.rps)),
        x: Axis {
            name: "hit ratio",
            unit: Unit::Share,
            log: false,
            range: (0.0, 1.0),
        },
        y: Axis {
            name: "dollars per 10,000 inferences",
            unit: Unit::Dollars,
            log: false,
            range: (0.0, most * 1.08),
        },
        lines,
        here: None,
        limits: Vec::new(),
        crosses,
        rows: ((0..=4).map(|quarter| f64::from(quarter) / 4.0).collect(), 0.011),
    };
    // A line is a tier's, in whatever cache state it was counted.
    let tiers: Vec<String> = series.iter().map(|one| one.tier.clone()).collect();
    html! {
        (Figure::new(series, vec![chart], NOTE).named(&tiers).html())
        ul.plain { @for sentence in sentences { li { (sentence) "." } } }
    }
}

const NOTE: &str = "Each tier on the cheapest instance that it can be had on; what a miss costs is counted in each measured cache \
                    state, not assumed; the line passes through them. The cache's own memory is part of the instance. Circles: \
                    where a tier costs the same as the winner.";

/// Pieces that a line is drawn of.
const STEPS: u32 = 100;

fn drawn(series: usize, of: &economics::Line) -> Line {
    let mut line = Line {
        series,
        plain: true,
        ..Line::default()
    };
    for step in 0..=STEPS {
        let hit_ratio = f64::from(step) / f64::from(STEPS);
        line.push(hit_ratio, of.at(hit_ratio));
    }
    line
}
