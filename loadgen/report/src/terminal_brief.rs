//! The last lines of a run on a terminal: the answer, a line for each variant, the remarks that matter, and where the rest is.
//!
//! In: a summarised run. Out: text of at most [`LINES`] lines of [`COLUMNS`] columns. Knows nothing of files but their names.

use crate::content::Report;
use crate::content::figures::Cell;
use crate::content::overview::{Overview, SLOWEST};
use crate::text_style::{self, shown, wrapped};
use std::path::Path;
use tierlab_analysis::record::Run;

/// Limit of the text's length.
const LINES: usize = 25;
/// Limit of its width. Only a long folder name exceeds it.
const COLUMNS: usize = 100;
/// Lines of the sentence at most.
const SENTENCE_LINES: usize = 3;
/// Remarks at most.
const REMARKS: usize = 5;
/// Fewest columns that a name is cut to.
const NAME_COLUMNS: usize = 16;

/// The run in a few lines. `views` is the folder of the reports, where any were written.
#[must_use]
pub fn brief(run: &Run, folder: &Path, views: Option<&Path>) -> String {
    let report = Report::of(run);
    let sentence = sentence(&report.brief.sentence);
    let remarks = remarks(&report.brief.remarks);
    let paths = paths(run, folder, views);
    // Empty lines before the table, the remarks and the paths; the table's header and its rule.
    let room = LINES.saturating_sub(sentence.len() + remarks.len() + paths.len() + 5);
    let table = table(&report, room);
    let parts = [sentence, table, remarks, paths];
    let parts: Vec<String> = parts
        .iter()
        .filter(|part| !part.is_empty())
        .map(|part| part.join("\n"))
        .collect();
    shown(&(parts.join("\n\n") + "\n"))
}

fn paths(run: &Run, folder: &Path, views: Option<&Path>) -> Vec<String> {
    let answer = if run.answer.is_some() { ", answer.json" } else { "" };
    let views = views.map(|views| {
        let page = views.join("report.html");
        format!(
            "report:  {} (beside it: report.md, summary.csv{answer})",
            page.display()
        )
    });
    let more = format!("details: tierlab-loadgen report {} --verbose", folder.display());
    views.into_iter().chain([more]).collect()
}

/// One line for each variant, point or curve, the header first; nothing for a run without any.
fn table(report: &Report<'_>, room: usize) -> Vec<String> {
    let mut overview = Overview::of(report, room);
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

/// The table's lines, with as much as fits: all intervals, those of the p99, none; without its last column; at last with names
/// that are cut.
fn fitted(table: &Overview) -> Vec<String> {
    let is_tail = |index: usize| table.columns[index].0.starts_with("p99");
    let all = |_: usize| true;
    let none = |_: usize| false;
    let details: [&dyn Fn(usize) -> bool; 3] = [&all, &is_tail, &none];
    for has_interval in details {
        let lines = grid(table, has_interval, usize::MAX);
        if width(&lines) <= COLUMNS {
            return lines;
        }
    }
    if table.columns.last().is_some_and(|(name, _)| name == SLOWEST) {
        return fitted(&table.without_last());
    }
    let names = table.rows.iter().map(|row| row[0].value.chars().count());
    let excess = width(&grid(table, &none, usize::MAX)) - COLUMNS;
    let longest = names.max().unwrap_or(0).saturating_sub(excess);
    grid(table, &none, longest.max(NAME_COLUMNS))
}

fn width(lines: &[String]) -> usize {
    lines.iter().map(|line| line.chars().count()).max().unwrap_or(0)
}

fn grid(table: &Overview, has_interval: &dyn Fn(usize) -> bool, name_columns: usize) -> Vec<String> {
    let cell = |(index, cell): (usize, &Cell)| match index {
        0 => cut(&cell.value, name_columns),
        _ if has_interval(index) => cell.text(),
        _ => cell.without_interval(),
    };
    let rows = table.rows.iter().map(|row| row.iter().enumerate().map(cell).collect());
    text_style::table(&table.columns, rows)
}

/// Text of at most `columns` columns.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The sentence in as few lines as its clauses fit into.
fn sentence(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for clause in format!("{text}.").split_inclusive("; ").map(str::trim_end) {
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

/// The first remarks, and how many there are beside them.
fn remarks(all: &[String]) -> Vec<String> {
    let shown = if all.len() > REMARKS { REMARKS - 1 } else { all.len() };
    let more = (all.len() > shown).then(|| format!("{} more remarks are in the report", all.len() - shown));
    let remarks = all[..shown].iter().chain(&more);
    remarks.map(|remark| cut(&format!("• {remark}"), COLUMNS)).collect()
}

/// The first lines of a sentence, the last of them cut if there are more.
fn limited(text: &str) -> Vec<String> {
    let mut kept: Vec<String> = text
        .lines()
        .take(SENTENCE_LINES)
        .map(|line| cut(line, COLUMNS))
        .collect();
    if let (Some(last), true) = (kept.last_mut(), text.lines().count() > SENTENCE_LINES) {
        *last = cut(&format!("{last} …"), COLUMNS);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_beyond_the_limit_are_counted() {
        let of = |count: usize| remarks(&vec!["x".to_owned(); count]);
        assert_eq!(of(REMARKS).len(), REMARKS);
        assert_eq!(of(7)[3..], ["• x", "• 3 more remarks are in the report"]);
    }

    #[test]
    fn a_sentence_is_broken_between_its_halves() {
        assert_eq!(sentence("Use nvme; measured"), ["Use nvme; measured."]);
        let first = "Use nvme for p99 < 50 ms".repeat(4);
        assert_eq!(
            sentence(&format!("{first}; measured p99 1 ms")),
            [format!("{first};"), "measured p99 1 ms.".to_owned()]
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
