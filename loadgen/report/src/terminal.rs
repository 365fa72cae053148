//! Full report of a run for a terminal (`--verbose`).
//!
//! In: a summarised run. Out: text of at most 160 columns: the answer to a question, a table per mode, model and batch size, then
//! the legend, a sentence per curve, and all remarks. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::AnswerText;
use crate::content::group::Group;
use crate::content::highest_rate::EXPLANATION;
use crate::content::table::{Cell, Table};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use tierlab_analysis::record::Run;

const LEGEND: &str = "Latency runs from the scheduled send to the last byte of the reply; [lo–hi] and ± are 95 % intervals; \
                      ~: rough, without an upper bound; n/a: too few requests.\nsaturated: the server could not keep up at this rate or failed \
                      too many requests; invalid: the instrument or the machine failed (reasons below).";

/// Returns the answer of a run as text; `None` without a question.
pub fn answer_text(run: &Run) -> Option<String> {
    Report::of(run).answer.as_ref().map(answer).as_deref().map(shown)
}

/// Returns all tables and sentences of a run as text.
pub fn table(run: &Run) -> String {
    let report = Report::of(run);
    let mut text = report.answer.as_ref().map_or_else(String::new, answer);
    for sentence in &report.requests {
        text += &format!("{}\n\n", self::sentence(sentence));
    }
    for group in &report.groups {
        text += &format!("{}\n{}\n\n", group.name, points(&report, group));
    }
    text += &report.side_tables.iter().map(side_table).collect::<String>();
    text += LEGEND;
    text += "\n\n";
    for group in &report.groups {
        text += &list("• ", &group.sentences);
        text += &list("• ", &group.mix_shares);
    }
    let rates: Vec<String> = report.groups.iter().flat_map(|group| group.slo_rates.clone()).collect();
    if !rates.is_empty() {
        text += &format!("\n{EXPLANATION}\n{}\n", list("• ", &rates));
    }
    text += &list("• ", &report.instrument.sound);
    if let Some(pricing) = &run.pricing {
        text += &format!("\nPrices:\n{}", list("  ", &pricing.sources));
    }
    if !report.cautions.is_empty() {
        text += &format!("\nCautions:\n{}", list("  ", &report.cautions));
    }
    shown(&text)
}

/// Text with its full stop, in lines.
fn sentence(text: &str) -> String {
    wrapped(&format!("{text}."), 0, COLUMNS)
}

/// Sentences as a list.
fn bullets(lines: &[String]) -> String {
    let bullet = |line: &String| wrapped(&format!("• {line}."), 2, COLUMNS) + "\n";
    lines.iter().map(bullet).collect()
}

/// Answer, ranking, reasons for each rank, open questions, and confidence.
fn answer(answer: &AnswerText) -> String {
    let [sentence_text, terms] = [&answer.sentence, &answer.terms].map(|text| sentence(text));
    let table = text_table(&answer.without_reasons()).join("\n");
    let mut text = format!("{sentence_text}\n{terms}\n\n{table}\n");
    for (rank, row) in (1..).zip(&answer.ranking.rows) {
        let why = row.last().map_or("", |why| &why.value);
        text += &format!("{}\n", wrapped(&format!("{rank}. {}: {why}", row[0].value), 3, COLUMNS));
    }
    for (title, lines) in answer.lists() {
        if !lines.is_empty() {
            text += &format!("\n{title}:\n{}", bullets(lines));
        }
    }
    text + "\n"
}

/// Table beside the curves, with its explanation.
fn side_table(side: &Table) -> String {
    let table = text_table(side).join("\n");
    let (title, intro, notes) = (&side.title, sentence(&side.intro), bullets(&side.notes));
    format!("{title}\n{table}\n{intro}\n{notes}\n")
}

/// Width of text, in columns of the terminal.
const COLUMNS: usize = 160;

fn list(bullet: &str, lines: &[String]) -> String {
    lines.iter().map(|line| format!("{bullet}{line}\n")).collect()
}

/// Points of a group, each curve named once and followed by an empty line.
fn points(report: &Report<'_>, group: &Group<'_>) -> String {
    let mut table = report.short_points(group);
    let mut is_first = true;
    for row in &mut table.rows {
        if !is_first && !row.is_empty() {
            row[..2].fill(Cell::plain(""));
        }
        is_first = row.is_empty();
    }
    text_table(&table).join("\n")
}

/// Style of a table: a rule below the header and nothing else.
pub(crate) const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Returns a table as lines of text, without its heading.
pub fn text_table(of: &Table) -> Vec<String> {
    let mut table = comfy_table::Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(of.columns.iter().map(|(name, _)| name))
        .add_rows(of.text());
    for ((_, is_number), column) in of.columns.iter().zip(table.column_iter_mut()) {
        column.set_padding((0, 1));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Text that a terminal shows unchanged: texts of a run are untrusted, and could move the cursor, set colours, or
/// reverse the direction of letters.
pub(crate) fn shown(text: &str) -> String {
    let is_order = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_plain = |c: char| c == '\n' || !(c.is_control() || is_order(c));
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Text in lines of at most `columns` columns, all but the first moved in.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > columns {
            out += &format!("\n{:indent$}", "");
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_others_wrote_gives_a_terminal_no_orders() {
        assert_eq!(
            shown("a\u{1b}[2Jb\r\u{202e}\u{9b}é–≥\n"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}é–≥\n"
        );
    }
}
