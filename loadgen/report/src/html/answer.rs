//! The answer on the page: its opening, the charts beside it, and its details. In: the answer in words. Out: HTML.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::latency;
use super::markup::{findings, number, scroll};
use super::series::Series;
use super::tables;
use crate::content::answer::{AROUND, AnswerText, RankRow};
use crate::content::figures::{Cell, meets};
use crate::content::group::Group;
use crate::units::rate;
use maud::{Markup, html};
use tierlab_analysis::record::{AnswerOutcome, MeetsObjective};

/// The sentence and the ranking.
pub(super) fn opening(answer: &AnswerText) -> Markup {
    let class = match answer.outcome {
        AnswerOutcome::Decided => "valid",
        AnswerOutcome::Undecided => "saturated",
        AnswerOutcome::None => "invalid",
    };
    html! {
        div.answer.(class) {
            p.said { (answer.sentence) ". " span.badge.(class) { (answer.word()) } }
        }
        (ranking(answer, &answer.deciding_columns(), false))
        "\n"
    }
}

/// The whole ranking with its reasons, and what follows from it.
pub(super) fn details(answer: &AnswerText) -> Markup {
    let columns: Vec<usize> = (0..answer.columns.len()).collect();
    html! {
        p { (answer.terms) "." }
        (ranking(answer, &columns, true))
        @for (title, lines) in answer.lists() {
            @if !lines.is_empty() { h3 { (title) } (findings(lines)) }
        }
    }
}

fn ranking(answer: &AnswerText, columns: &[usize], has_reasons: bool) -> Markup {
    scroll(
        "Variants in their order",
        &html! {
            table.brief.ranking {
                thead {
                    tr {
                        th { "variant" }
                        th { "SLO" }
                        @for &index in columns {
                            @let (name, is_number) = &answer.columns[index];
                            th class=[number(*is_number)] { (name) }
                        }
                        @if has_reasons { th { "why" } }
                    }
                }
                tbody { @for ranked in &answer.rows { (row(answer, ranked, columns, has_reasons)) } }
            }
        },
    )
}

/// The tail against the rate, beside it the month against the demand where there are prices and a demand.
pub(super) fn charts(answer: Option<&AnswerText>, group: &Group<'_>) -> Markup {
    let series = Series::of(group);
    let tail = latency::tail(group, &series);
    let months = answer.and_then(|answer| over_demand(answer, &series));
    let charts: Vec<Chart> = tail.into_iter().chain(months).collect();
    Figure::new(&series, charts, CAPTION).leading().html()
}

const CAPTION: &str = "Point at a curve for its 95 % intervals. Hollow markers: saturated, invalid or rough. Ring: the highest rate that \
                       the server held.";

/// Dollars a month over the demand; nothing without prices or a demand.
fn over_demand(answer: &AnswerText, series: &[Series<'_>]) -> Option<Chart> {
    let peak_rps = answer.peak_rps?;
    let mut lines = Vec::new();
    for months in &answer.months {
        let Some(index) = series
            .iter()
            .position(|one| one.curve.factors().label() == months.tier.name)
        else {
            continue;
        };
        let mut line = Line {
            series: index,
            plain: true,
            ..Line::default()
        };
        for (rps, usd) in &months.curve {
            line.push(*rps, *usd);
        }
        lines.push(line);
    }
    let rates = || lines.iter().flat_map(|line| &line.x).copied();
    let dollars = || lines.iter().flat_map(|line| &line.y).copied();
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let ends = (least(&mut rates()), most(&mut rates()));
    let usd = (least(&mut dollars()) / 1.15, most(&mut dollars()) * 1.15);
    (!lines.is_empty()).then(|| Chart {
        title: "Cost against demand".to_owned(),
        x: Axis {
            name: "requests per second at the peak",
            unit: Unit::Rate,
            log: true,
            range: ends,
        },
        y: Axis {
            name: "dollars a month",
            unit: Unit::Dollars,
            log: true,
            range: usd,
        },
        here: Some((short(peak_rps), format!("{}/s", rate(peak_rps)))),
        limits: Vec::new(),
        crosses: Vec::new(),
        rows: (AROUND.map(|times| short(times * peak_rps)).to_vec(), 0.0),
        lines,
    })
}

fn row(answer: &AnswerText, ranked: &RankRow, columns: &[usize], has_reasons: bool) -> Markup {
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
            @for &index in columns {
                @let (name, is_number) = &answer.columns[index];
                td data-label=(name) class=[number(*is_number)] { (figure(&ranked.cells[index])) }
            }
            @if has_reasons { td.why { (ranked.why) } }
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
