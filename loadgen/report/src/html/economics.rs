//! Costs side by side: each series on every instance, and the tiers over the hit ratio of a cache.
//!
//! In: a group and its series. Out: a table and a figure. Knows nothing of other figures.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::markup::escape;
use super::series::Series;
use crate::content::costs::{Costs, OverHitRatio, SIDE_BY_SIDE};
use crate::content::group::Group;
use crate::units::{NONE, digits3, dollars, rate};
use tierlab_analysis::costs::economics::{self, BreakEven, break_even};

/// Both; nothing without prices.
pub(super) fn of_group(group: &Group<'_>, series: &[Series<'_>]) -> String {
    let Some(costs) = &group.costs else {
        return String::new();
    };
    let over = costs.over_hit_ratio.as_ref();
    instances(costs) + &over.map_or_else(String::new, |over| break_evens(over, &costs.break_evens, series))
}

/// Each series at its best rate on every instance; nothing with fewer than two.
fn instances(costs: &Costs<'_>) -> String {
    if costs.instances.len() < 2 || costs.rows.is_empty() {
        return String::new();
    }
    let mut head = String::from("<th>tier</th><th>cache</th><th class=\"n\">at</th>");
    for instance in costs.instances {
        head += &format!(
            "<th class=\"n\">{}<span class=\"ci\">${}/h{}</span></th>",
            escape(&instance.name),
            digits3(instance.usd_per_hour),
            if instance.checked { "" } else { ", unchecked" }
        );
    }
    let mut body = String::new();
    for row in &costs.rows {
        body += &format!(
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
            escape(&row.tier),
            escape(&row.cache),
            escape(&row.best.text())
        );
        for usd in &row.on {
            body += &usd.map_or_else(
                || format!("<td class=\"n\">{NONE}</td>"),
                |usd| {
                    format!(
                        "<td class=\"n\">{}{}<span class=\"ci\">[{}–{}]</span></td>",
                        row.best.at_most(),
                        dollars(usd.value),
                        digits3(usd.lo),
                        digits3(usd.hi)
                    )
                },
            );
        }
        body += "</tr>";
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\
         <p class=\"note\">$/10k inferences. {}</p>",
        escape(SIDE_BY_SIDE)
    )
}

/// What the tiers cost over the hit ratio, where they cross, and the same in words.
fn break_evens(over: &OverHitRatio, sentences: &[String], series: &[Series<'_>]) -> String {
    let looks = |line: &economics::Line| series.iter().position(|one| one.curve.factors().label() == line.tier);
    let lines: Vec<Line> = over
        .lines
        .iter()
        .filter_map(|line| Some(drawn(looks(line)?, line)))
        .collect();
    let most = lines.iter().flat_map(|line| &line.y).copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let mut crosses = Vec::new();
    for (index, a) in over.lines.iter().enumerate() {
        for b in &over.lines[index + 1..] {
            if let BreakEven::At { hit_ratio, .. } = break_even(a, b) {
                crosses.push((short(hit_ratio.value), short(a.at(hit_ratio.value))));
            }
        }
    }
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
    let items: String = sentences
        .iter()
        .map(|sentence| format!("<li>{}.</li>", escape(sentence)))
        .collect();
    // A line is a tier's, in whatever cache state it was counted.
    let tiers: Vec<String> = series.iter().map(|one| one.tier.clone()).collect();
    Figure::new(series, vec![chart], NOTE).named(&tiers).html() + &format!("<ul class=\"plain\">{items}</ul>")
}

const NOTE: &str = "Each tier on the cheapest instance that it can be had on; what a miss costs is counted in each measured cache \
                    state, not assumed; the line passes through them. The cache's own memory is part of the instance. Circles: \
                    where two cost the same.";

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
