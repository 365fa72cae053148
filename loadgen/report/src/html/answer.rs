//! The answer as the page's first section. In: the answer in words. Out: HTML.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::markup::{findings, number};
use super::tables;
use crate::content::answer::{AROUND, AnswerText, RankRow};
use crate::content::figures::{Cell, meets};
use crate::units::rate;
use maud::{Markup, html};
use tierlab_analysis::record::{AnswerOutcome, MeetsObjective};

/// The sentence, the ranking, what was left open, and how sure it all is.
pub(super) fn section(answer: &AnswerText) -> Markup {
    let class = match answer.outcome {
        AnswerOutcome::Decided => "valid",
        AnswerOutcome::Undecided => "saturated",
        AnswerOutcome::None => "invalid",
    };
    html! {
        section.answer.(class) {
            h2 { "The answer " span.badge.(class) { (answer.word()) } }
            p.said { (answer.sentence) "." }
            (ranking(answer))
            (over_demand(answer))
            @for (title, lines) in answer.lists() {
                @if !lines.is_empty() { h3 { (title) } (findings(lines)) }
            }
        }
        "\n"
    }
}

fn ranking(answer: &AnswerText) -> Markup {
    html! {
        div.scroll {
            table.brief.ranking {
                thead {
                    tr {
                        th { "variant" }
                        th { "SLO" }
                        @for (name, is_number) in &answer.columns { th class=[number(*is_number)] { (name) } }
                        th { "why" }
                    }
                }
                tbody { @for ranked in &answer.rows { (row(answer, ranked)) } }
            }
        }
    }
}

/// Dollars a month over the demand; nothing without prices or a demand.
fn over_demand(answer: &AnswerText) -> Markup {
    let Some(peak_rps) = answer.peak_rps else {
        return Markup::default();
    };
    let lines = answer.months.iter().enumerate().map(|(series, months)| {
        let mut line = Line {
            series,
            plain: true,
            ..Line::default()
        };
        for (rps, usd) in &months.curve {
            line.push(*rps, *usd);
        }
        line
    });
    let lines: Vec<Line> = lines.collect();
    let rates = || lines.iter().flat_map(|line| &line.x).copied();
    let dollars = || lines.iter().flat_map(|line| &line.y).copied();
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let chart = Chart {
        title: "$/month over the demand".to_owned(),
        x: Axis {
            name: "requests per second at the peak",
            unit: Unit::Rate,
            log: true,
            range: (least(&mut rates()), most(&mut rates())),
        },
        y: Axis {
            name: "dollars a month",
            unit: Unit::Dollars,
            log: true,
            range: (least(&mut dollars()) / 1.15, most(&mut dollars()) * 1.15),
        },
        here: Some((short(peak_rps), format!("{}/s", rate(peak_rps)))),
        limits: Vec::new(),
        crosses: Vec::new(),
        rows: (AROUND.map(|times| short(times * peak_rps)).to_vec(), 0.0),
        lines,
    };
    Figure::of_tiers(
        answer.months.iter().map(|months| &months.tier),
        vec![chart],
        OVER_DEMAND,
    )
    .html()
}

const OVER_DEMAND: &str = "With the highest rate of one instance as in the table above. A step is one more instance; between two steps only \
                           requests and bytes cost more. The average is the same share of the peak everywhere.";

fn row(answer: &AnswerText, ranked: &RankRow) -> Markup {
    let class = match ranked.outcome {
        MeetsObjective::Met => "valid",
        MeetsObjective::NotMet => "invalid",
        MeetsObjective::Unknown => "saturated",
    };
    html! {
        tr {
            td data-label="variant" {
                span.rank { (ranked.rank) }
                (ranked.tier.name)
                @if let Some(origin) = &ranked.tier.origin { (tables::badge(origin, &origin.label())) }
            }
            td data-label="SLO" { span.badge.(class) { (meets(ranked.outcome)) } }
            @for ((name, is_number), cell) in answer.columns.iter().zip(&ranked.cells) {
                td data-label=(name) class=[number(*is_number)] { (figure(cell)) }
            }
            td.why { (ranked.why) }
        }
    }
}

fn figure(cell: &Cell) -> Markup {
    html! {
        (cell.value)
        @for below in [&cell.interval, &cell.at] {
            @if !below.is_empty() { span.ci { (below) } }
        }
    }
}
