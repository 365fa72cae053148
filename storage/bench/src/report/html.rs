//! `report.html`: one page that loads nothing. It says everything in tables without a script too.

use super::kept::Kept;
use super::parts::{badges, facts, list, pre, section, under};
use super::rows::{Family, HEADER, NOTE, families, row};
use super::{curves, heat, sentences};
use crate::summary::Verdict;
use tierlab_report::document;
use tierlab_report::parts::escape;

/// The page.
pub(super) fn page(kept: &Kept) -> String {
    let families = families(&kept.points);
    let mut body = header(kept);
    body += &section("Beside other tools", &list(&sentences::peers(&kept.points)));
    let maps: String = families
        .iter()
        .map(|family| under(&family.name, &heat::maps(family)))
        .collect();
    body += &section("Block and depth", &maps);
    let curves: String = curves::figures(&kept.points)
        .iter()
        .map(|(name, html)| under(name, html))
        .collect();
    body += &section("Latency", &curves);
    let tables: String = families
        .iter()
        .map(|family| under(&family.name, &table(family)))
        .collect();
    body += &section(
        "Every point",
        &format!("<p class=\"soft\">{}</p>{tables}", escape(NOTE)),
    );
    body += &section("To beware of", &list(&sentences::cautions(kept)));
    let commands = sentences::commands(&kept.points);
    body += &section("The tools' commands", &pre(&commands.join("\n")));
    body += &section("The plan", &pre(kept.plan.trim_end()));
    document("tierlab-storage-bench", &escape(&kept.name), &body)
}

fn header(kept: &Kept) -> String {
    let mut out = format!(
        "{}<h1>{}</h1>{}<p>",
        heat::STYLE,
        escape(&kept.name),
        facts(&sentences::facts(kept))
    );
    type Of = fn(&Verdict) -> bool;
    let kinds: [(&str, &str, Of); 4] = [
        ("valid", "valid", |verdict| *verdict == Verdict::Valid),
        ("saturated", "saturated", |verdict| *verdict == Verdict::Saturated),
        ("invalid", "unknown", |verdict| matches!(verdict, Verdict::Unknown(_))),
        ("invalid", "failed", |verdict| matches!(verdict, Verdict::Failed(_))),
    ];
    for (class, word, of) in kinds {
        let count = kept.points.iter().filter(|point| of(&point.verdict)).count();
        if count > 0 {
            out += &format!("<span class=\"badge {class}\">{count} {word}</span> ");
        }
    }
    out + &badges(kept.interrupted, &kept.tiers) + "</p>"
}

fn table(family: &Family<'_>) -> String {
    let heads: String = HEADER
        .iter()
        .map(|head| format!("<th class=\"n\">{head}</th>"))
        .collect();
    let mut out = format!("<div class=\"scroll\"><table><thead><tr>{heads}</tr></thead><tbody>");
    for summary in &family.points {
        let off = if summary.verdict == Verdict::Valid {
            ""
        } else {
            " class=\"off\""
        };
        let cells: String = row(summary)
            .iter()
            .map(|cell| format!("<td class=\"n\">{}</td>", escape(cell)))
            .collect();
        out += &format!("<tr{off}>{cells}</tr>");
    }
    out + "</tbody></table></div>"
}
