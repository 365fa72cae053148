//! `report.html`: one page that loads nothing. It says everything in tables without a script too.

use super::kept::Kept;
use super::parts::{badges, facts, pre, section, under};
use super::rows::{Family, HEADER, NOTE, families, row};
use super::{curves, heat, sentences};
use crate::summary::Verdict;
use maud::{Markup, html};
use tierlab_report::document;
use tierlab_report::parts::{closed, findings, scroll};

/// The page.
pub(super) fn page(kept: &Kept) -> String {
    let families = families(&kept.points);
    let maps = html! { @for family in &families { (under(&family.name, &heat::maps(family))) } };
    let curves = html! { @for (name, figure) in curves::figures(&kept.points) { (under(&name, &figure)) } };
    let tables = html! {
        p.soft { (NOTE) }
        @for family in &families { (under(&family.name, &table(family))) }
    };
    let commands = sentences::commands(&kept.points).join("\n");
    let body = html! {
        (header(kept))
        (section("Beside other tools", &findings(&sentences::peers(&kept.points))))
        (section("Block and depth", &maps))
        (section("Latency", &curves))
        (closed("points", "Every point", &tables))
        (section("To beware of", &findings(&sentences::cautions(kept))))
        (closed("commands", "The tools' commands", &pre(&commands)))
        (closed("plan", "The plan", &pre(kept.plan.trim_end())))
    };
    document("tierlab-storage-bench", &kept.name, &body)
}

fn header(kept: &Kept) -> Markup {
    type Of = fn(&Verdict) -> bool;
    let kinds: [(&str, &str, Of); 4] = [
        ("valid", "valid", |verdict| *verdict == Verdict::Valid),
        ("saturated", "saturated", |verdict| *verdict == Verdict::Saturated),
        ("invalid", "unknown", |verdict| matches!(verdict, Verdict::Unknown(_))),
        ("invalid", "failed", |verdict| matches!(verdict, Verdict::Failed(_))),
    ];
    html! {
        style { (heat::STYLE) }
        h1 { (kept.name) }
        (facts(&sentences::facts(kept)))
        p {
            @for (class, word, of) in kinds {
                @let count = kept.points.iter().filter(|point| of(&point.verdict)).count();
                @if count > 0 { span.badge.(class) { (count) " " (word) } " " }
            }
            (badges(kept.interrupted, &kept.tiers))
        }
    }
}

fn table(family: &Family<'_>) -> Markup {
    html! {
        (scroll(&family.name, &html! {
            table {
                thead { tr { @for head in HEADER { th.n { (head) } } } }
                tbody {
                    @for summary in &family.points {
                        tr class=[(summary.verdict != Verdict::Valid).then_some("off")] {
                            @for cell in row(summary) { td.n { (cell) } }
                        }
                    }
                }
            }
        }))
    }
}
