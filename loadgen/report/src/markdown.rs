//! `report.md`: a run for a pull request or a mail, in at most 800 words.
//!
//! In: a summarised run. Out: Markdown: the answer, then what fits of the rest, the most important first. Everything else is in
//! `report.html` and `summary.csv`. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::{AnswerText, NOT_DECIDED};
use crate::content::figures::Cell;
use crate::content::overview::Overview;
use crate::content::side_tables::SideTable;
use crate::units::thousands;
use tierlab_analysis::record::Run;

/// Words of the text before its footer.
const WORDS: usize = 730;
/// Points that are listed one by one.
const POINTS: usize = 12;
/// Digits of a commit that are shown.
const COMMIT_DIGITS: usize = 12;

/// The text.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let report = Report::of(run);
    let mut page = Page::default();
    page.add(&format!(
        "# {}\n\n**{}.**\n\n{}\n",
        plain(report.name),
        plain(&report.brief.sentence),
        facts(&report)
    ));
    if let Some(answer) = &report.answer {
        page.add(&format!("\n{}.\n", plain(&answer.terms)));
    }
    let overview = Overview::of(&report, POINTS);
    let rows = overview
        .rows
        .iter()
        .map(|cells| row(&cells.iter().map(Cell::text).collect::<Vec<_>>()));
    page.lines(&head(&overview.columns), rows, "rows");
    page.list("", &report.brief.remarks);
    for (title, lines) in report.answer.iter().flat_map(AnswerText::lists) {
        // Open questions are among the remarks.
        if title != NOT_DECIDED {
            page.list(title, lines);
        }
    }
    report.side_tables.iter().for_each(|side| side_table(&mut page, side));
    page.list("What to beware of", &report.cautions);
    for group in &report.groups {
        page.list("", &group.mix_shares);
        page.list(&group.name, &group.sentences);
        page.list("", &group.reaches);
    }
    let instrument = &report.instrument;
    let certificates = instrument.not_refused().map(str::to_owned);
    let instrument: Vec<String> = certificates.chain([instrument.noise_floor.clone()]).collect();
    page.list("The instrument", &instrument);
    page.text
        + "\nLatency runs from the scheduled send to the last byte of the reply; [lo–hi] are 95 % intervals; ~: rough, without an upper \
           bound; n/a: too few requests. Charts, costs and evidence are in `report.html`, all points in `summary.csv`.\n"
}

/// Text that takes no more words than [`WORDS`].
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn fits(&self, more: &str) -> bool {
        self.text.split_whitespace().count() + more.split_whitespace().count() <= WORDS
    }

    fn add(&mut self, text: &str) {
        self.text += text;
    }

    /// Adds text if it fits.
    fn offer(&mut self, text: &str) -> bool {
        let fits = self.fits(text);
        if fits {
            self.add(text);
        }
        fits
    }

    /// Adds as many lines as fit, below a heading where there is one, and how many did not.
    fn list(&mut self, title: &str, lines: &[String]) {
        let heading = match title {
            "" => "\n".to_owned(),
            title => format!("\n## {}\n\n", plain(title)),
        };
        self.lines(
            &heading,
            lines
                .iter()
                .map(|line| format!("- {}.\n", plain(line.trim_end_matches('.')))),
            "remarks",
        );
    }

    fn lines(&mut self, heading: &str, lines: impl Iterator<Item = String>, what: &str) {
        let mut left_out = 0;
        for (index, line) in lines.enumerate() {
            let start = if index == 0 { heading } else { "" };
            left_out += usize::from(left_out > 0 || !self.offer(&format!("{start}{line}")));
            if left_out > 0 && index == 0 {
                // Not even the first fits: the whole is left out.
                return;
            }
        }
        if left_out > 0 {
            self.add(&format!("\n{left_out} more {what} are in `report.html`.\n"));
        }
    }
}

fn side_table(page: &mut Page, side: &SideTable) {
    let rows = side.rows.iter().map(|cells| row(cells));
    page.lines(&format!("\n## {}\n{}", side.title, head(&side.columns)), rows, "rows");
    page.offer(&format!("\n{}.\n", plain(&side.intro)));
    page.list("", &side.notes);
}

fn facts(report: &Report<'_>) -> String {
    let commit: String = report.commit.chars().take(COMMIT_DIGITS).collect();
    format!(
        "{} · {} points, {} requests · {}, {} cores · commit `{}`",
        report.started_at,
        report.amount.points,
        thousands(report.amount.requests),
        plain(report.cpu),
        report.cores,
        plain(&commit)
    )
}

/// The head of a table: names, and true for columns of numbers.
fn head(columns: &[(impl AsRef<str>, bool)]) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_ref()).collect();
    let rules: Vec<&str> = columns
        .iter()
        .map(|(_, is_number)| if *is_number { "--:" } else { "---" })
        .collect();
    format!("\n{}{}", row(&names), row(&rules))
}

fn row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell.as_ref())).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that Markdown shows as it is: what a run says was written by others.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '#' | '[' | ']' | '~' => out.extend(['\\', c]),
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_end_a_cell_or_begin_markup() {
        assert_eq!(plain("a|b <c> *d*\n# e\u{1b}"), "a\\|b &lt;c&gt; \\*d\\* \\# e ");
        assert_eq!(row(&["x", "y|z"]), "| x | y\\|z |\n");
    }
}
