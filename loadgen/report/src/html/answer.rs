//! The answer as the page's first section. In: the answer in words. Out: HTML.

use super::chart::{Axis, Chart, Figure, Line, Unit, short};
use super::markup::escape;
use super::tables;
use crate::content::answer::{AROUND, AnswerText, RankRow};
use crate::content::figures::{Cell, meets};
use crate::units::rate;
use tierlab_analysis::record::{AnswerOutcome, MeetsObjective};

/// The sentence, the ranking, what was left open, and how sure it all is.
pub(super) fn section(answer: &AnswerText) -> String {
    let class = match answer.outcome {
        AnswerOutcome::Decided => "valid",
        AnswerOutcome::Undecided => "saturated",
        AnswerOutcome::None => "invalid",
    };
    let mut out = format!(
        "<section class=\"answer {class}\"><h2>The answer <span class=\"badge {class}\">{}</span></h2><p class=\"said\">{}.</p>\
         <div class=\"scroll\"><table class=\"brief ranking\"><thead><tr><th>variant</th><th>SLO</th>",
        answer.word(),
        escape(&answer.sentence)
    );
    for (name, is_number) in &answer.columns {
        out += &format!("<th{}>{}</th>", tables::number(*is_number), escape(name));
    }
    out += "<th>why</th></tr></thead><tbody>";
    for ranked in &answer.rows {
        out += &row(answer, ranked);
    }
    out += "</tbody></table></div>";
    out += &over_demand(answer);
    for (title, lines) in answer.lists() {
        let items: String = lines.iter().map(|line| format!("<li>{}.</li>", escape(line))).collect();
        if !items.is_empty() {
            out += &format!("<h3>{title}</h3><ul class=\"findings\">{items}</ul>");
        }
    }
    out + "</section>\n"
}

/// Dollars a month over the demand; nothing without prices or a demand.
fn over_demand(answer: &AnswerText) -> String {
    let Some(peak_rps) = answer.peak_rps else {
        return String::new();
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

fn row(answer: &AnswerText, ranked: &RankRow) -> String {
    let class = match ranked.outcome {
        MeetsObjective::Met => "valid",
        MeetsObjective::NotMet => "invalid",
        MeetsObjective::Unknown => "saturated",
    };
    let badge = ranked.tier.origin.as_ref().map_or_else(String::new, |origin| {
        format!(
            " <span class=\"badge {}\" data-tip=\"{}\">{}</span>",
            origin.kind,
            escape(&origin.says),
            escape(&origin.label())
        )
    });
    let mut out = format!(
        "<tr><td data-label=\"variant\"><span class=\"rank\">{}</span>{}{badge}</td><td data-label=\"SLO\">\
         <span class=\"badge {class}\">{}</span></td>",
        ranked.rank,
        escape(&ranked.tier.name),
        meets(ranked.outcome)
    );
    for ((name, is_number), cell) in answer.columns.iter().zip(&ranked.cells) {
        out += &format!(
            "<td data-label=\"{}\"{}>{}</td>",
            escape(name),
            tables::number(*is_number),
            figure(cell)
        );
    }
    out + &format!("<td class=\"why\">{}</td></tr>", escape(&ranked.why))
}

fn figure(cell: &Cell) -> String {
    let below = [&cell.interval, &cell.at].map(String::as_str);
    let below: String = below
        .into_iter()
        .filter(|text| !text.is_empty())
        .map(|text| format!("<span class=\"ci\">{}</span>", escape(text)))
        .collect();
    escape(&cell.value) + &below
}
