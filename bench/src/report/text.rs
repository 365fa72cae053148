//! A report for the terminal, and `report.md`.

use super::{Page, Part};
use std::path::Path;
use tierlab_report::parts::{MarkdownPage, Table, brief_text, markdown_table};

impl Page<'_> {
    /// The answer for a terminal, with the paths of the reports.
    pub(crate) fn text(&self, folder: &Path, csv_name: &str) -> String {
        let page = folder.join("report.html");
        let path = format!(
            "report:  {} (beside it: report.md, {csv_name}, run.json)",
            page.display()
        );
        let overview = |_rows| self.overview.clone();
        brief_text(self.sentence(), self.remarks(), vec![path], overview)
    }

    /// The report as Markdown, without charts: the answer, and what fits of the rest.
    pub(crate) fn markdown(&self, csv_name: &str) -> String {
        let mut page = MarkdownPage::new(&self.run.name, self.sentence());
        page.list("", &self.all_facts());
        page.table("", &self.overview);
        page.list("", self.remarks());
        for part in &self.parts {
            match part {
                Part::List(title, lines) => page.list(title, lines),
                Part::Tables(title, tables, note) if !tables.is_empty() => {
                    let tables: String = tables.iter().map(with_title).collect();
                    page.push_if_fits(&format!("\n## {title}\n{tables}\n{note}\n"));
                }
                _ => {}
            }
        }
        let rest =
            format!("`report.html` has all tables, charts and the plan, `{csv_name}` and `run.json` all figures.");
        page.text + &format!("\n{rest}\n")
    }
}

fn with_title(table: &Table) -> String {
    let title = match table.title() {
        "" => String::new(),
        title => format!("\n### {title}\n"),
    };
    format!("{title}\n{}", markdown_table(table))
}
