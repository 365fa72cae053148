//! `report.md`: a run for a pull request or a mail.
//!
//! In: a summarised run. Out: Markdown, short: the answer and what came out first, every point folded away. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::AnswerText;
use crate::content::best::Best;
use crate::content::costs::{Costs, SIDE_BY_SIDE};
use crate::content::figures::{Cell, meets};
use crate::content::group::Group;
use crate::content::point_row::{PointRow, has_goodput};
use crate::content::side_tables::SideTable;
use crate::content::words;
use crate::units::{NONE, dollars, dollars_interval, latency, latency_interval, percent, rate, thousands};
use std::fmt::Write as _;
use tierlab_analysis::record::{Percentile, Run};

/// The text.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let report = Report::of(run);
    let mut out = format!("# {}\n\n{}\n", plain(report.name), facts(&report));
    out += &report.answer.as_ref().map_or_else(String::new, answer);
    for group in &report.groups {
        let _ = write!(out, "\n## {}\n\n{}\n", plain(&group.name), executive(group));
        for line in group.sentences.iter().chain(&group.reaches).chain(&group.mix_shares) {
            let _ = writeln!(out, "- {}.", plain(line));
        }
        out += &group.costs.as_ref().map_or_else(String::new, costs);
    }
    out += &report.side_tables.iter().map(side_table).collect::<String>();
    let _ = write!(
        out,
        "\nLatency runs from the scheduled send to the last byte of the reply; [lo–hi] are 95 % intervals; ~: rough, without \
         an upper bound; {NONE}: too few requests.\n\n## What to beware of\n\n"
    );
    if report.cautions.is_empty() {
        out += "- Nothing: every point is valid.\n";
    }
    for caution in &report.cautions {
        let _ = writeln!(out, "- {}", plain(caution));
    }
    out += &instrument(&report);
    out + &every_point(&report.points)
}

/// The answer, the ranking, what was left open, and how sure it all is.
fn answer(answer: &AnswerText) -> String {
    let names = answer.columns.iter().map(|(name, _)| *name);
    let head: Vec<&str> = ["#", "variant", "SLO"]
        .into_iter()
        .chain(names)
        .chain(["why"])
        .collect();
    let rules = answer
        .columns
        .iter()
        .map(|(_, is_number)| if *is_number { "--:" } else { "---" });
    let rules: Vec<&str> = ["--:", "---", "---"].into_iter().chain(rules).chain(["---"]).collect();
    let mut out = format!(
        "\n## The answer\n\n**{}.**\n\n{}{}",
        plain(&answer.sentence),
        row(&head),
        row(&rules)
    );
    for ranked in &answer.rows {
        let who = [
            ranked.rank.clone(),
            ranked.tier.labelled(),
            meets(ranked.outcome).to_owned(),
        ];
        let figures = ranked.cells.iter().map(Cell::text);
        let cells: Vec<String> = who.into_iter().chain(figures).chain([ranked.why.clone()]).collect();
        out += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for (title, lines) in answer.lists() {
        if !lines.is_empty() {
            let _ = write!(out, "\n{title}:\n\n");
        }
        for line in lines {
            let _ = writeln!(out, "- {}.", plain(line));
        }
    }
    out
}

fn side_table(side: &SideTable) -> String {
    let names: Vec<&str> = side.columns.iter().map(|(name, _)| name.as_ref()).collect();
    let rules: Vec<&str> = side
        .columns
        .iter()
        .map(|(_, is_figure)| if *is_figure { "--:" } else { "---" })
        .collect();
    let mut out = format!(
        "\n## {}\n\n{}.\n\n{}{}",
        side.title,
        plain(&side.intro),
        row(&names),
        row(&rules)
    );
    for cells in &side.rows {
        out += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    out += "\n";
    for note in &side.notes {
        let _ = writeln!(out, "- {}.", plain(note));
    }
    out
}

fn facts(report: &Report<'_>) -> String {
    let mut text = format!(
        "{} · {} points, {} requests · {}, {} cores · commit `{}`",
        report.started_at,
        report.amount.points,
        thousands(report.amount.requests),
        plain(report.cpu),
        report.cores,
        plain(report.commit)
    );
    for sentence in &report.requests {
        let _ = write!(text, "\n\n{}.", plain(sentence));
    }
    text
}

/// Per tier and cache: the best rate, the tail at a common one (the highest percentile that all have there), the price at the
/// best, and what dominates.
fn executive(group: &Group<'_>) -> String {
    let at = group
        .common_rps
        .map_or_else(|| "a common rate".to_owned(), |rps| format!("{} rps", rate(rps)));
    let mut out = row(&[
        "tier",
        "cache",
        &group.best_title,
        &format!("{} at {at}", group.tail.name),
        "$/10k at the highest rate",
        &format!("what dominates at {at}"),
    ]);
    out += &row(&["---", "---", "--:", "--:", "--:", "---"]);
    for curve in &group.rows {
        out += &row(&[
            &curve.tier.printed,
            &curve.cache,
            &curve.best.as_ref().map_or_else(|| "none".to_owned(), Best::text),
            &latency_interval(curve.at_common.and_then(group.tail.of).as_ref()),
            &curve
                .best
                .as_ref()
                .and_then(Best::cost)
                .unwrap_or_else(|| NONE.to_owned()),
            &curve
                .at_common
                .and_then(|summary| summary.tail.as_ref())
                .map_or_else(|| NONE.to_owned(), words::dominance),
        ]);
    }
    out
}

/// What the highest rates cost by part and by instance, and where tiers break even.
fn costs(costs: &Costs<'_>) -> String {
    if costs.rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["$/10k".to_owned(), "of which".to_owned()];
    head.extend(costs.instances.iter().map(|instance| instance.name.clone()));
    let mut rows = String::new();
    for curve in &costs.rows {
        let best = &curve.best;
        let summary = best.point.summary.as_ref();
        let parts = summary.map_or(&[][..], |summary| &summary.usd_parts);
        let parts: Vec<String> = parts
            .iter()
            .map(|(name, usd)| format!("{name} {}", dollars(*usd)))
            .collect();
        let mut cells = vec![
            format!(
                "{} {} at {}: {}",
                curve.tier,
                curve.cache,
                best.text(),
                best.cost().unwrap_or_else(|| NONE.to_owned())
            ),
            parts.join(", "),
        ];
        cells.extend(curve.on.iter().map(|usd| {
            usd.map_or_else(
                || NONE.to_owned(),
                |usd| format!("{}{}", best.at_most(), dollars(usd.value)),
            )
        }));
        rows += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let mut out = format!(
        "\n<details><summary>What it costs</summary>\n\n{}{}{rows}\n",
        row(&head.iter().map(String::as_str).collect::<Vec<_>>()),
        row(&vec!["---"; head.len()])
    );
    for line in &costs.break_evens {
        let _ = writeln!(out, "- {}.", plain(line));
    }
    let _ = write!(out, "\n{SIDE_BY_SIDE}\n\nPrices:\n\n");
    for source in costs.sources {
        let _ = writeln!(out, "- {}", plain(source));
    }
    out + "\n</details>\n"
}

/// The noise floor, the certificates and every line that counts.
fn instrument(report: &Report<'_>) -> String {
    let instrument = &report.instrument;
    let mut out = String::from("\n## The instrument\n\n");
    let _ = writeln!(out, "- {}.", plain(&instrument.noise_floor));
    for certificate in &instrument.certificates {
        let _ = writeln!(out, "- {}.", plain(&certificate.text));
    }
    for line in &instrument.checks {
        let text = format!(
            "{}: {}, expected {}, measured {}",
            if line.check.passed { "passed" } else { "FAILED" },
            line.name,
            line.check.expected,
            line.check.measured
        );
        let _ = writeln!(out, "- {}", plain(&text));
    }
    out
}

fn every_point(points: &[PointRow<'_>]) -> String {
    let has_goodput = has_goodput(points);
    let header = [
        "point", "verdict", "p50", "p90", "p95", "p99", "p99.9", "mean", "max", "good/s", "hits", "errors", "$/10k",
    ];
    let mut out = format!(
        "\n<details><summary>Every point</summary>\n\n{}{}",
        row(&[&header[..], if has_goodput { &["goodput/s"] } else { &[] }].concat()),
        row(&["---", "---"]
            .into_iter()
            .chain(std::iter::repeat_n("--:", 11 + usize::from(has_goodput)))
            .collect::<Vec<_>>())
    );
    for point in points {
        let Some(figures) = &point.figures else { continue };
        let summary = figures.summary;
        let [p50, p90, p95, p99, p999] =
            Percentile::ALL.map(|percentile| latency_interval(summary.percentile(percentile).as_ref()));
        let mut cells = vec![
            point.name.clone(),
            figures.verdict.to_owned(),
            p50,
            p90,
            p95,
            p99,
            p999,
            latency_interval(summary.mean_us.as_ref()),
            summary.max_us.map_or_else(|| NONE.to_owned(), latency),
            rate(summary.achieved_rps.value),
            summary.cache_hit_ratio.map_or_else(|| "–".to_owned(), percent),
            thousands(summary.errors),
            dollars_interval(summary.usd_per_10k.as_ref()),
        ];
        cells.extend(has_goodput.then(|| figures.goodput()));
        out += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
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
            c if c.is_control() => out.push(' '),
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
        assert_eq!(plain("a|b <c> *d*\n# e\u{1b}"), "a\\|b &lt;c&gt; \\*d\\* \\# e ");
        assert_eq!(row(&["x", "y|z"]), "| x | y\\|z |\n");
    }
}
