//! Costs side by side: each series on every instance, and the tiers over the hit ratio of a cache.
//!
//! In: a group and its series. Out: a table and a figure. Knows nothing of other figures.

use super::chart::{AREA, Axis, HEIGHT, Scale, WIDTH, frame};
use super::markup::escape;
use super::series::Series;
use crate::content::costs::{Costs, OverHitRatio, SIDE_BY_SIDE, TierLine};
use crate::content::group::Group;
use crate::units::{NONE, digits3, dollars, rate};
use tierlab_analysis::costs::economics::{BreakEven, break_even};

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
    let lines = || over.lines.iter().map(|tier| &tier.line);
    let most = lines()
        .flat_map(|line| (0..=STEPS).map(|step| line.at(f64::from(step) / f64::from(STEPS))))
        .fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let (left, top, right, bottom) = AREA;
    let x = Scale::new(0.0, 1.0, false, left + 6.0, right - 8.0);
    let y = Scale::new(0.0, most * 1.08, false, bottom, top);
    let x_ticks: Vec<(f64, String)> = (0..=5)
        .map(|tick| (f64::from(tick) / 5.0, format!("{} %", 20 * tick)))
        .collect();
    let step = round_step(most / 4.0);
    let y_ticks: Vec<(f64, String)> = (0..=8)
        .map(|tick| f64::from(tick) * step)
        .filter(|usd| *usd <= most * 1.08)
        .map(|usd| (usd, dollars(usd)))
        .collect();
    let title = format!("$/10k over the hit ratio of a cache, at {} rps", rate(over.rps));
    let mut out = format!(
        "<div class=\"panels even\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"cost over hit ratio\">{}",
        frame(
            &title,
            "hit ratio",
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
    for tier in &over.lines {
        out += &drawn(tier, series, &x, &y);
    }
    for (index, a) in lines().enumerate() {
        for b in lines().skip(index + 1) {
            if let BreakEven::At { hit_ratio, .. } = break_even(a, b) {
                let (at, height) = (x.at(hit_ratio.value), y.at(a.at(hit_ratio.value)));
                out += &format!("<circle class=\"cross\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"5\"/>");
            }
        }
    }
    out += "</svg><ul class=\"plain\">";
    for sentence in sentences {
        out += &format!("<li>{}.</li>", escape(sentence));
    }
    out + "</ul></div><p class=\"note\">Each tier on the cheapest instance that it can be had on; what a miss costs is \
           counted in each measured cache state, not assumed; the line passes through them. The cache's own memory is part of the instance.</p>"
}

/// Pieces that a line is drawn of.
const STEPS: u32 = 50;

fn drawn(tier: &TierLine, series: &[Series<'_>], x: &Scale, y: &Scale) -> String {
    let line = &tier.line;
    let Some(look) = series.iter().find(|one| one.curve.factors().label() == line.tier) else {
        return String::new();
    };
    let cold = y.at(line.at(0.0));
    let path: Vec<String> = (0..=STEPS)
        .map(|step| f64::from(step) / f64::from(STEPS))
        .map(|hit_ratio| format!("{:.1} {:.1}", x.at(hit_ratio), y.at(line.at(hit_ratio))))
        .collect();
    let path = path.join("L");
    let tip = format!(
        "{} on {}\n{} per 10k without hits\n{} if every row hit",
        tier.tier,
        line.instance,
        dollars(line.at(0.0)),
        dollars(line.at(1.0))
    );
    format!(
        "<g data-tip=\"{}\"><path class=\"line\" stroke=\"{}\" d=\"M{path}\"/>{}\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        escape(&tip),
        look.colour(),
        look.marker(x.at(0.0), cold, false),
        x.at(0.0) + 9.0,
        cold - 6.0,
        escape(&tier.tier)
    )
}

/// 1, 2 or 5 times a power of ten, no smaller than a number.
fn round_step(at_least: f64) -> f64 {
    let decade = 10_f64.powf(at_least.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * decade >= at_least);
    decade * factor.unwrap_or(10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (at_least, step) in [(0.000_31, 0.000_5), (1.0, 1.0), (1.1, 2.0), (60.0, 100.0)] {
            assert!((round_step(at_least) / step - 1.0).abs() < 1e-9, "{at_least}");
        }
    }
}
