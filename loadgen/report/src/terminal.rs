//! Everything that a terminal shows of a run on request (`--verbose`).
//!
//! In: a summarised run. Out: text of at most 160 columns: the answer where a question was asked, a table per mode, model and
//! batch size, then the legend, a sentence per tier, and what to beware of. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::AnswerText;
use crate::content::figures::{Cell, meets};
use crate::content::group::Group;
use crate::content::overview::{OF_POINTS, Overview, of_point};
use crate::content::reach::REACH;
use crate::content::side_tables::SideTable;
use crate::text_style::{self, shown, wrapped};
use tierlab_analysis::record::Run;

const LEGEND: &str = "Latency runs from the scheduled send to the last byte of the reply; [lo–hi] and ± are 95 % intervals; \
                      ~: rough, without an upper bound; n/a: too few requests.\nsaturated: the server could not keep up at this rate or failed \
                      too many requests; invalid: the instrument or the machine failed (reasons below).";

/// The answer of a run, as its table opens with it; `None` where nothing was asked.
#[must_use]
pub fn answer_text(run: &Run) -> Option<String> {
    Report::of(run).answer.as_ref().map(answer).as_deref().map(shown)
}

/// The table of a run, with what it says and what to beware of.
#[must_use]
pub fn table(run: &Run) -> String {
    let report = Report::of(run);
    let mut text = report.answer.as_ref().map_or_else(String::new, answer);
    for sentence in &report.requests {
        text += &format!("{}\n\n", wrapped(&format!("{sentence}."), 0, COLUMNS));
    }
    for group in &report.groups {
        text += &format!("{}\n{}\n\n", group.name, grid(group));
    }
    text += &report.side_tables.iter().map(side_table).collect::<String>();
    text += LEGEND;
    text += "\n\n";
    for group in &report.groups {
        text += &list(&group.sentences);
        text += &list(&group.mix_shares);
    }
    if !report.reached.is_empty() {
        text += &format!("\n{REACH}\n{}\n", list(&report.reached));
    }
    let instrument = &report.instrument;
    if instrument.has_noise_floor {
        text += &format!("• {}\n", instrument.noise_floor);
    }
    // Those that prove nothing stand among what to beware of.
    for sentence in instrument.not_refused() {
        text += &format!("• {sentence}\n");
    }
    if let Some(sources) = report.price_sources {
        text += "\nPrices:\n";
        for source in sources {
            text += &format!("  {source}\n");
        }
    }
    if !report.cautions.is_empty() {
        text += "\nBeware:\n";
        for caution in &report.cautions {
            text += &format!("  {caution}\n");
        }
    }
    shown(&text)
}

/// The answer, the ranking, why each variant is where it is, what was left open, and how sure it all is.
fn answer(answer: &AnswerText) -> String {
    let names = ["#", "variant", "SLO"].map(|name| (name.to_owned(), false));
    let columns: Vec<(String, bool)> = names.into_iter().chain(answer.columns.iter().cloned()).collect();
    let rows = answer.rows.iter().map(|row| {
        let who = [
            row.rank.clone(),
            row.tier.printed.clone(),
            meets(row.outcome).to_owned(),
        ];
        who.into_iter().chain(row.cells.iter().map(Cell::text)).collect()
    });
    let table = text_style::table(&columns, rows).join("\n");
    let mut text = format!(
        "{}\n{}\n\n{table}\n",
        wrapped(&format!("{}.", answer.sentence), 0, COLUMNS),
        wrapped(&format!("{}.", answer.terms), 0, COLUMNS)
    );
    for row in &answer.rows {
        text += &format!(
            "{}\n",
            wrapped(&format!("{}. {}: {}", row.rank, row.tier.name, row.why), 3, COLUMNS)
        );
    }
    for (title, lines) in answer.lists() {
        if !lines.is_empty() {
            text += &format!("\n{title}:\n");
        }
        for line in lines {
            text += &format!("{}\n", wrapped(&format!("• {line}."), 2, COLUMNS));
        }
    }
    text + "\n"
}

/// Closed loops or journeys.
fn side_table(side: &SideTable) -> String {
    let table = text_style::table(&side.columns, side.rows.iter().cloned()).join("\n");
    let mut text = format!(
        "{}\n{table}\n{}\n",
        side.title,
        wrapped(&format!("{}.", side.intro), 0, COLUMNS)
    );
    for note in &side.notes {
        text += &format!("{}\n", wrapped(&format!("• {note}."), 2, COLUMNS));
    }
    text + "\n"
}

/// Columns of a terminal that text is written for.
const COLUMNS: usize = 160;

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("• {line}\n")).collect()
}

/// Every point of a group, an empty line between curves.
fn grid(group: &Group<'_>) -> String {
    let columns: Vec<(&str, bool)> = [("tier", false), ("cache", false)]
        .into_iter()
        .chain(OF_POINTS)
        .collect();
    let mut rows = Vec::new();
    for (number, curve) in group.rows.iter().enumerate() {
        if number > 0 {
            rows.push(vec![Cell::of(None); columns.len()]);
        }
        for (index, point) in curve.points.iter().enumerate() {
            // A curve is named once: the eye finds the next one by the name.
            let who = if index == 0 {
                [point.tier.printed.as_str(), &point.cache]
            } else {
                [""; 2]
            };
            rows.push(who.map(Cell::plain).into_iter().chain(of_point(point)).collect());
        }
    }
    let Overview { columns, rows } = Overview::known(&columns, &rows);
    let is_gap = |row: &[Cell]| row.iter().all(Cell::is_empty);
    let rows = rows.iter().map(|row| match is_gap(row) {
        true => vec![String::new(); row.len()],
        false => row.iter().map(Cell::text).collect(),
    });
    text_style::table(&columns, rows).join("\n")
}
