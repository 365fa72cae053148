//! Last lines of a run on a terminal: the answer, a line per variant, the most important remarks, and the paths of the reports.
//!
//! In: a summarised run. Out: text of at most [`LINES`] lines of [`COLUMNS`] columns. Knows nothing of files but their names.

use crate::content::Report;
use crate::content::table::{Cell, Table};
use crate::terminal::{shown, text_table, wrapped};
use std::path::Path;
use tierlab_analysis::record::Run;

/// Maximum lines of the text.
const LINES: usize = 25;
/// Maximum columns of the text. Only a long folder name exceeds it.
const COLUMNS: usize = 100;
/// Maximum lines of the sentence.
const SENTENCE_LINES: usize = 3;
/// Maximum number of remarks.
const REMARKS: usize = 5;
/// Minimum columns of a cut name.
const NAME_COLUMNS: usize = 16;

/// Returns a run in a few lines. `views` is the folder of its reports, if there are any.
pub fn brief(run: &Run, folder: &Path, views: Option<&Path>) -> String {
    let report = Report::of(run);
    let paths = paths(run, folder, views);
    brief_text(&report.sentence, &report.remarks, paths, |rows| report.overview(rows))
}

/// Returns a run of any program in a few lines: its sentence, a table for a number of rows, its remarks and the paths of its reports.
pub fn brief_text(text: &str, remarks: &[String], paths: Vec<String>, rows: impl FnOnce(usize) -> Table) -> String {
    let sentence = sentence(text);
    let remarks = self::remarks(remarks);
    // Empty lines before the table, the remarks and the paths; the table's header and its rule.
    let room = LINES.saturating_sub(sentence.len() + remarks.len() + paths.len() + 5);
    let table = table(rows(room), room);
    let parts = [sentence, table, remarks, paths];
    let parts = parts.iter().filter(|part| !part.is_empty());
    let parts: Vec<String> = parts.map(|part| part.join("\n")).collect();
    shown(&(parts.join("\n\n") + "\n"))
}

fn paths(run: &Run, folder: &Path, views: Option<&Path>) -> Vec<String> {
    let answer = if run.answer.is_some() { ", answer.json" } else { "" };
    let views = views.map(|views| {
        let page = views.join("report.html");
        let page = page.display();
        format!("report:  {page} (beside it: report.md, summary.csv{answer})")
    });
    let more = format!("details: tierlab-loadgen report {} --verbose", folder.display());
    views.into_iter().chain([more]).collect()
}

/// One line per variant, point or curve, the header first; empty for a run without any.
fn table(mut overview: Table, room: usize) -> Vec<String> {
    let left_out = overview.rows.len().saturating_sub(room);
    if left_out > 0 {
        overview.rows.truncate(room.saturating_sub(1));
    }
    if overview.rows.is_empty() {
        return Vec::new();
    }
    let mut lines = fitted(&overview);
    if left_out > 0 {
        lines.push(format!("… and {} more in the report", left_out + 1));
    }
    lines
}

/// Lines of a table with as much as fits: all intervals, those of the p99, none; without the dominant part; with cut names.
fn fitted(table: &Table) -> Vec<String> {
    let is_tail = |index: usize| table.columns[index].0.starts_with("p99");
    let details: [&dyn Fn(usize) -> bool; 3] = [&|_| true, &is_tail, &|_| false];
    let mut lines = Vec::new();
    for has_interval in details {
        lines = text_table(&shortened(table, has_interval, usize::MAX));
        if width(&lines) <= COLUMNS {
            return lines;
        }
    }
    // A last column of text says what dominates.
    if let [_, _, .., (last, false)] = &table.columns[..] {
        return fitted(&table.named(|name| name != last));
    }
    let names = table.rows.iter().map(|row| row[0].text().chars().count());
    let longest = names.max().unwrap_or(0).saturating_sub(width(&lines) - COLUMNS);
    text_table(&shortened(table, |_| false, longest.max(NAME_COLUMNS)))
}

fn width(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// The table with names of at most `name_columns`, and with the intervals of some columns.
fn shortened(table: &Table, has_interval: impl Fn(usize) -> bool, name_columns: usize) -> Table {
    let cell = |(index, cell): (usize, &Cell)| match index {
        0 => Cell::plain(&cut(&cell.text(), name_columns)),
        _ if has_interval(index) => cell.clone(),
        _ => Cell::plain(&cell.without_interval()),
    };
    let rows = table.rows.iter().map(|row| row.iter().enumerate().map(cell).collect());
    Table::new(table.columns.iter().cloned(), rows)
}

/// Text of at most `columns` columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

/// Sentence in as few lines as its clauses allow.
fn sentence(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let text = format!("{text}.");
    let halves = text.split_inclusive("; ");
    for clause in halves.flat_map(|half| half.split_inclusive(") ")).map(str::trim_end) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + clause.chars().count() <= COLUMNS => {
                *line += &format!(" {clause}");
            }
            _ => lines.push(clause.to_owned()),
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| wrapped(line, 0, COLUMNS)).collect();
    limited(&lines.join("\n"))
}

/// First remarks, and the number of the others.
fn remarks(all: &[String]) -> Vec<String> {
    let shown = if all.len() > REMARKS { REMARKS - 1 } else { all.len() };
    let more = (all.len() > shown).then(|| format!("{} more remarks are in the report", all.len() - shown));
    let remarks = all[..shown].iter().chain(&more);
    remarks.map(|remark| cut(&format!("• {remark}"), COLUMNS)).collect()
}

/// First lines of a sentence, the last of them cut if there are more.
fn limited(text: &str) -> Vec<String> {
    let first = text.lines().take(SENTENCE_LINES);
    let mut lines: Vec<String> = first.map(|line| cut(line, COLUMNS)).collect();
    if let (Some(last), true) = (lines.last_mut(), text.lines().count() > SENTENCE_LINES) {
        *last = cut(&format!("{last} …"), COLUMNS);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::table::{figures, text};

    #[test]
    fn remarks_beyond_the_limit_are_counted() {
        let of = |count: usize| remarks(&vec!["x".to_owned(); count]);
        assert_eq!(of(REMARKS).len(), REMARKS);
        assert_eq!(of(7)[3..], ["• x", "• 3 more remarks are in the report"]);
    }

    #[test]
    fn names_are_cut_only_where_nothing_else_can_go() {
        let columns = [text("variant"), figures("p99"), text("slowest requests")];
        let row = |end: &str| {
            let name = format!("{}{end}", "x".repeat(50));
            [name, "1.83 ms".to_owned(), "y".repeat(40)].map(|text| Cell::plain(&text))
        };
        let rows = ["warm", "cold"].map(|end| row(end).to_vec());
        let lines = fitted(&Table::new(columns, rows)).join("\n");
        assert!(lines.contains("xwarm") && lines.contains("xcold"), "{lines}");
        assert!(!lines.contains('y'), "{lines}");
    }

    #[test]
    fn the_text_of_any_program_fits_a_terminal() {
        let columns = ["access", "MB/s", "calls/s", "p50", "p99"].iter().enumerate();
        let columns = columns.map(|(index, name)| ((*name).to_owned(), index > 0));
        let row = |number: usize| {
            let name = format!("disk {number} by pread-direct: random mixed, not synced, 64 files");
            let figure = |index: usize| format!("{index}2345 [{index}2000–{index}3000]");
            let cells = std::iter::once(name).chain((1..5).map(figure));
            cells.map(|text| Cell::split(&text)).collect::<Vec<_>>()
        };
        let table = Table::new(columns, (0..40).map(row));
        let remarks = vec!["an access failed ".repeat(20); 30];
        let paths = vec!["report:  results/run/report.html".to_owned()];
        let text = brief_text("Use the first; it is fast", &remarks, paths, |_| table);
        assert_eq!(text.lines().count(), LINES, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        assert!(text.starts_with("Use the first; it is fast.\n\naccess"), "{text}");
        assert!(
            text.contains("\ndisk 0 by pread-direct: random mixed, not synced"),
            "{text}"
        );
        assert!(
            text.contains("more in the report") && text.contains("• 26 more remarks are in the report"),
            "{text}"
        );
    }

    #[test]
    fn a_sentence_is_broken_between_its_halves() {
        assert_eq!(sentence("Use nvme; measured"), ["Use nvme; measured."]);
        let first = "Use nvme for p99 < 50 ms".repeat(4);
        assert_eq!(
            sentence(&format!("{first}; measured p99 1 ms")),
            [format!("{first};"), "measured p99 1 ms.".to_owned()]
        );
        let price = format!("Use gp3-warm: $233 a month (r7i.xlarge, {})", "x".repeat(50));
        let objective = "for p99 < 50 ms at 3,000/s; measured p99 2.83 ms";
        assert_eq!(
            sentence(&format!("{price} {objective}")[..]),
            [price, format!("{objective}.")]
        );
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(cut("s3-standard warm", 10), "s3-standa…");
        assert_eq!(cut("nvme", 10), "nvme");
        let long = "word ".repeat(100);
        let lines = limited(&wrapped(&long, 0, COLUMNS));
        assert_eq!(lines.len(), SENTENCE_LINES);
        assert!(lines[2].ends_with('…') && width(&lines) <= COLUMNS, "{lines:?}");
    }
}
