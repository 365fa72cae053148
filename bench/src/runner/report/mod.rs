//! Report of a run of points: a table for each family of points, heat maps, curves, other tools.

mod csv;
mod curves;
mod heat;
mod kept;
mod sentences;

pub(super) use kept::Kept;

use crate::report::{CsvRow, Page, Part, under};
use crate::runner::summary::Summary;
use kept::{NOTE, block, families};
use maud::html;

/// Rows of `points.csv`.
pub(super) fn csv(points: &[Summary]) -> impl Iterator<Item = CsvRow> + '_ {
    points.iter().map(csv::row)
}

/// Content of the report.
pub(super) fn page(kept: &Kept) -> Page<'_> {
    let points = &kept.points;
    let families = families(points);
    let curves = html! { @for (name, figure) in curves::figures(points) { (under(&name, &figure)) } };
    let list = |title, lines| Part::List { title, lines };
    Page {
        ran: &kept.ran,
        facts: sentences::facts(kept),
        badges: badges(points),
        parts: vec![
            list("Beside other tools", sentences::peers(points)),
            Part::Charts {
                title: "Block and depth",
                html: heat::maps(&families),
            },
            Part::Charts {
                title: "Latency",
                html: curves,
            },
            Part::Tables {
                title: "Every point",
                blocks: families.iter().map(block).collect(),
                note: NOTE,
            },
            list("To beware of", sentences::cautions(kept)),
            Part::Text {
                title: "The tools' commands",
                text: sentences::commands(points),
            },
        ],
    }
}

/// Number of points of each verdict.
fn badges(points: &[Summary]) -> Vec<(&'static str, String)> {
    ["valid", "saturated", "unknown", "failed"]
        .into_iter()
        .filter_map(|word| {
            let count = points.iter().filter(|point| point.verdict.word() == word).count();
            let class = match word {
                "unknown" | "failed" => "invalid",
                _ => word,
            };
            (count > 0).then(|| (class, format!("{count} {word}")))
        })
        .collect()
}
