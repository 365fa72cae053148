//! `report.md`: a run for a pull request or a mail, in at most 800 words.
//!
//! In: a summarised run. Out: Markdown: the answer, then what fits of the rest, the most important first. Everything else is in
//! `report.html` and `summary.csv`. Knows nothing of files.

use crate::content::Report;
use crate::content::answer::{AnswerText, NOT_DECIDED};
use crate::content::table::{Column, Table};
use tierlab_analysis::record::Run;

/// Maximum words before the footer.
const WORDS: usize = 730;
/// Maximum number of points listed one by one.
const POINTS: usize = 12;
/// Shown digits of a commit.
const COMMIT_DIGITS: usize = 12;

/// Returns the text of `report.md`.
pub fn markdown(run: &Run) -> String {
    let report = Report::of(run);
    let mut page = Page::new(&run.name, &report.sentence);
    page.text += &format!("\n{}\n", facts(&report));
    if let Some(answer) = &report.answer {
        page.text += &format!("\n{}.\n", plain(&answer.terms));
    }
    page.table("", &report.overview(POINTS));
    page.list("", &report.remarks);
    for (title, lines) in report.answer.iter().flat_map(AnswerText::lists) {
        // Open questions are among the remarks.
        if title != NOT_DECIDED {
            page.list(title, lines);
        }
    }
    for side in &report.side_tables {
        page.table(&format!("\n## {}\n", side.title), side);
        page.push_if_fits(&format!("\n{}.\n", plain(&side.intro)));
        page.list("", &side.notes);
    }
    page.list("Cautions", &report.cautions);
    for group in &report.groups {
        page.list("", &group.mix_shares);
        page.list(&group.name, &group.sentences);
        page.list("", &group.slo_rates);
    }
    page.list("The instrument", &report.instrument.sound);
    page.text
        + "\nLatency runs from the scheduled send to the last byte of the reply; [lo–hi] are 95 % intervals; ~: rough, without an upper \
           bound; n/a: too few requests. Charts, costs and evidence are in `report.html`, all points in `summary.csv`.\n"
}

/// Markdown of at most 730 words.
pub struct Page {
    /// Text so far; a footer of at most 70 words can follow.
    pub text: String,
}

impl Page {
    /// Creates a page with the name of a run and its sentence, which has no full stop.
    pub fn new(name: &str, sentence: &str) -> Self {
        let text = format!("# {}\n\n**{}.**\n", plain(name), plain(sentence));
        Self { text }
    }

    /// Adds Markdown if it fits; returns true if it does.
    pub fn push_if_fits(&mut self, text: &str) -> bool {
        let words = self.text.split_whitespace().count() + text.split_whitespace().count();
        if words <= WORDS {
            self.text += text;
        }
        words <= WORDS
    }

    /// Adds as many lines as fit, below an optional heading, and the number of the others.
    pub fn list(&mut self, title: &str, lines: &[String]) {
        let heading = match title {
            "" => "\n".to_owned(),
            title => format!("\n## {}\n\n", plain(title)),
        };
        let lines = lines.iter().map(|line| format!("- {}.\n", plain(line)));
        self.lines(&heading, lines);
    }

    /// Adds as many rows as fit, below a heading in Markdown, and the number of the others.
    pub fn table(&mut self, heading: &str, table: &Table) {
        let head = format!("{heading}\n{}", head(table));
        self.lines(&head, table.text().map(|cells| row(&cells)));
    }

    fn lines(&mut self, heading: &str, lines: impl Iterator<Item = String>) {
        let mut left_out = 0;
        for (index, line) in lines.enumerate() {
            let start = if index == 0 { heading } else { "" };
            left_out += usize::from(left_out > 0 || !self.push_if_fits(&format!("{start}{line}")));
            if left_out > 0 && index == 0 {
                // Not even the first fits: the whole is left out.
                return;
            }
        }
        if left_out > 0 {
            self.text += &format!("\n`report.html` has {left_out} more.\n");
        }
    }
}

fn facts(report: &Report<'_>) -> String {
    let environment = &report.run.environment;
    let commit: String = environment.git_commit.chars().take(COMMIT_DIGITS).collect();
    let (started_at, amount, cores) = (&report.run.started_at, &report.amount, environment.cores);
    let [cpu, commit] = [&environment.cpu, &commit].map(|text| plain(text));
    format!("{started_at} · {amount} · {cpu}, {cores} cores · commit `{commit}`")
}

/// Returns a whole table as Markdown, without its heading.
pub fn table(table: &Table) -> String {
    head(table) + &table.text().map(|cells| row(&cells)).collect::<String>()
}

fn head(table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
    let rule = |(_, is_number): &Column| if *is_number { "--:" } else { "---" };
    let rules: Vec<&str> = table.columns.iter().map(rule).collect();
    row(&names) + &row(&rules)
}

fn row(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell.as_ref())).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Text that Markdown shows unchanged, with code between backticks: texts of a run are untrusted. A pipe would end the cell
/// that its code is in, and a backslash before it cannot be escaped there: such parts are no code.
fn plain(text: &str) -> String {
    let is_code = |code: &str| !code.is_empty() && !code.contains(['|', '\\']);
    let mut out = String::with_capacity(text.len());
    let mut in_code = false;
    for (index, c) in text.char_indices() {
        let opens = || text[index + 1..].split_once('`').is_some_and(|(code, _)| is_code(code));
        match c {
            '`' if in_code || opens() => {
                in_code = !in_code;
                out.push(c);
            }
            c if in_code && !c.is_control() => out.push(c),
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
    fn a_page_takes_what_fits_and_counts_the_rest() {
        let mut page = Page::new("a run", "The answer");
        page.list("", &vec!["ten words ".repeat(5); 100]);
        assert!(page.text.starts_with("# a run\n\n**The answer.**\n\n- ten words"));
        assert!(page.text.contains("`report.html` has "), "{}", page.text);
        assert!(!page.push_if_fits(&"word ".repeat(WORDS)));
        assert!(page.text.split_whitespace().count() <= WORDS + 5);
    }

    #[test]
    fn what_others_wrote_cannot_end_a_cell_or_begin_markup() {
        assert_eq!(plain("a|b <c> *d*\n# e\u{1b}"), "a\\|b &lt;c&gt; \\*d\\* \\# e ");
        assert_eq!(row(&["x", "y|z"]), "| x | y\\|z |\n");
        for (text, shown) in [
            ("one ` <alone>", "one \\` &lt;alone&gt;"),
            ("`a|<b>`", "\\`a\\|&lt;b&gt;\\`"),
            ("``<b>", "\\`\\`&lt;b&gt;"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn backticks_mark_code_in_sentences_notes_and_cells() {
        let line = "raise `step_s` of `<b>`".to_owned();
        let mut page = Page::new("r", &line);
        page.list("", std::slice::from_ref(&line));
        page.text += &row(&[line]);
        assert_eq!(page.text.matches("raise `step_s` of `<b>`").count(), 3, "{}", page.text);
    }
}
