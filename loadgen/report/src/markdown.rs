//! `report.md`: a run for a pull request or a mail.
//!
//! In: a summarised run. Out: Markdown, short: what came out first, every point folded away. Knows nothing of files.

use crate::content::best::{self, Best};
use crate::content::{cautions, cold_starts, costs, instrument, percentiles, reach, words};
use crate::units::{NONE, dollars, latency_interval, percent, rate, thousands};
use std::fmt::Write as _;
use tierlab_analysis::costs::cost::Cost;
use tierlab_analysis::costs::economics::side_by_side;
use tierlab_analysis::curves::{Curve, common_rate};
use tierlab_analysis::record::{Point, Run};

/// The text.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let mut out = format!("# {}\n\n{}\n", plain(&run.name), facts(run));
    for (name, curves) in words::groups(run) {
        let _ = write!(out, "\n## {}\n\n{}\n", plain(&name), executive(run, &curves));
        for curve in &curves {
            let _ = writeln!(out, "- {}.", plain(&words::sentence(run, curve)));
        }
        for line in reach::reaches(run, &curves)
            .into_iter()
            .chain(costs::mix_shares(run, &curves))
        {
            let _ = writeln!(out, "- {}.", plain(&line));
        }
        out += &costs(run, &curves);
    }
    let cold = cold_starts::text(run);
    if !cold.is_empty() {
        // A fence of tildes: tier names may hold anything but a line of them.
        let _ = write!(out, "\n## Cold starts\n\n~~~~text\n{}\n~~~~\n", cold.trim_end());
    }
    let _ = write!(
        out,
        "\nLatency runs from the scheduled send to the last byte of the reply; [lo–hi] are 95 % intervals; {NONE}: too few \
         independent samples.\n\n## What to beware of\n\n"
    );
    let cautions = cautions::cautions(run);
    if cautions.is_empty() {
        out += "- Nothing: every point is valid.\n";
    }
    for caution in cautions {
        let _ = writeln!(out, "- {}", plain(&caution));
    }
    let _ = write!(out, "\n## The instrument\n\n");
    for line in instrument::instrument(run) {
        let _ = writeln!(out, "- {}", plain(&line));
    }
    out + &every_point(run)
}

fn facts(run: &Run) -> String {
    let environment = &run.environment;
    format!(
        "{} · {} points, {} requests · {}, {} cores · commit `{}`",
        run.started_at,
        run.points.len(),
        thousands(words::requests(run)),
        plain(&environment.cpu),
        environment.cores,
        plain(&environment.git_commit)
    )
}

/// Per tier and cache: the best rate, the tail at a common one (the highest percentile that all have there), the price at the best, and what dominates.
fn executive(run: &Run, curves: &[Curve<'_>]) -> String {
    let common = common_rate(&curves.iter().collect::<Vec<_>>());
    let at = common.map_or_else(|| "a common rate".to_owned(), |rps| format!("{} rps", rate(rps)));
    let at_common: Vec<Option<&Point>> = curves
        .iter()
        .map(|curve| common.and_then(|rps| curve.valid_at(rps)))
        .collect();
    let (name, _, percentile) = percentiles::highest(&at_common);
    let mut out = row(&[
        "tier",
        "cache",
        &best::title(run),
        &format!("{name} at {at}"),
        "$/10k at the highest rate",
        &format!("what dominates at {at}"),
    ]);
    out += &row(&["---", "---", "--:", "--:", "--:", "---"]);
    for (curve, point) in curves.iter().zip(at_common) {
        let factors = curve.factors();
        let best = best::best(run, curve);
        let summary = point.and_then(|point| point.summary.as_ref());
        out += &row(&[
            &words::tier(run, &factors.tier),
            &words::cache(factors),
            &best.as_ref().map_or_else(|| "none".to_owned(), Best::text),
            &latency_interval(summary.and_then(percentile).as_ref()),
            &best.as_ref().and_then(Best::cost).unwrap_or_else(|| NONE.to_owned()),
            &summary
                .and_then(|summary| summary.tail.as_ref())
                .map_or_else(|| NONE.to_owned(), words::dominance),
        ]);
    }
    out
}

/// What the highest rates cost by part and by instance, and where tiers break even.
fn costs(run: &Run, curves: &[Curve<'_>]) -> String {
    let Some(pricing) = &run.pricing else {
        return String::new();
    };
    let mut head = vec!["$/10k".to_owned(), "of which".to_owned()];
    head.extend(pricing.instances.iter().map(|instance| instance.name.clone()));
    let mut rows = String::new();
    for curve in curves {
        let Some(best) = best::best(run, curve) else { continue };
        let parts = best
            .point
            .summary
            .as_ref()
            .map_or(&[][..], |summary| &summary.usd_parts);
        let parts: Vec<String> = parts
            .iter()
            .map(|(name, usd)| format!("{name} {}", dollars(*usd)))
            .collect();
        let factors = curve.factors();
        let mut cells = vec![
            format!(
                "{} {} at {}: {}",
                words::tier(run, &factors.tier),
                words::cache(factors),
                best.text(),
                best.cost().unwrap_or_else(|| NONE.to_owned())
            ),
            parts.join(", "),
        ];
        cells.extend(side_by_side(best.point, pricing).into_iter().map(|(_, cost)| {
            let usd = |cost: Cost| format!("{}{}", best.at_most(), dollars(cost.usd_per_10k.value));
            cost.map_or_else(|| NONE.to_owned(), usd)
        }));
        rows += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n<details><summary>What it costs</summary>\n\n{}{}{rows}\n",
        row(&head.iter().map(String::as_str).collect::<Vec<_>>()),
        row(&vec!["---"; head.len()])
    );
    for line in costs::break_evens(run, curves) {
        let _ = writeln!(out, "- {}.", plain(&line));
    }
    let _ = write!(out, "\n{}\n\nPrices:\n\n", costs::SIDE_BY_SIDE);
    for source in &pricing.sources {
        let _ = writeln!(out, "- {}", plain(source));
    }
    out + "\n</details>\n"
}

fn every_point(run: &Run) -> String {
    let header = [
        "point", "verdict", "p50", "p95", "p99", "good/s", "hits", "errors", "$/10k",
    ];
    let mut out = format!(
        "\n<details><summary>Every point</summary>\n\n{}{}",
        row(&header),
        row(&["---", "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:"])
    );
    for point in &run.points {
        let Some(summary) = &point.summary else { continue };
        let [p50, p95, p99] =
            [&summary.p50_us, &summary.p95_us, &summary.p99_us].map(|us| latency_interval(us.as_ref()));
        out += &row(&[
            &words::name(run, &point.factors),
            words::verdict(&summary.verdict),
            &p50,
            &p95,
            &p99,
            &rate(summary.achieved_rps.value),
            &summary.cache_hit_ratio.map_or_else(|| "–".to_owned(), percent),
            &thousands(summary.errors),
            &best::price(point).unwrap_or_else(|| NONE.to_owned()),
        ]);
    }
    out + "\n</details>\n"
}

fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that Markdown shows as it is: what a run says was written by others.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '#' | '[' | ']' | '~' => out.extend(['\\', c]),
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_end_a_cell_or_begin_markup() {
        assert_eq!(plain("a|b <c> *d*\n# e"), "a\\|b &lt;c&gt; \\*d\\* \\# e");
        assert_eq!(row(&["x", "y|z"]), "| x | y\\|z |\n");
    }
}
