//! A report for the terminal, and `report.md`.

use super::{Block, Page, Part};
use tierlab_report::parts;

impl Page<'_> {
    /// Tables, then lists.
    pub(crate) fn text(&self) -> String {
        let mut tables = String::new();
        let mut lists = String::new();
        for part in &self.parts {
            match part {
                Part::Tables(_, blocks, note) if !blocks.is_empty() => {
                    for block in blocks {
                        let title = match block.title.as_str() {
                            "" => String::new(),
                            title => format!("{title}\n"),
                        };
                        let rows = block.rows.iter().map(|row| row.cells.clone());
                        tables += &format!("\n{title}{}\n", table(&block.header, block.words, rows));
                    }
                    tables += &format!("{note}\n");
                }
                Part::List(title, lines) if !lines.is_empty() => {
                    lists += &format!("\n{title}\n");
                    lists.extend(lines.iter().map(|line| format!("  {line}\n")));
                }
                _ => {}
            }
        }
        tables + &lists
    }
}

/// A table whose columns after the first `words` hold figures.
pub(crate) fn table(header: &[&str], words: usize, rows: impl Iterator<Item = Vec<String>>) -> String {
    let columns = header.iter().enumerate().map(|(at, name)| (*name, at >= words));
    parts::lines(&columns.collect::<Vec<_>>(), rows).join("\n")
}

impl Page<'_> {
    /// The report as Markdown, without charts.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n", self.ran.name, self.all_facts().join("  \n"));
        out.extend(self.parts.iter().map(markdown_of));
        out + &format!("\n## The plan\n\n```toml\n{}\n```\n", self.ran.plan.trim_end())
    }
}

fn markdown_of(part: &Part) -> String {
    match part {
        Part::List(title, lines) if !lines.is_empty() => {
            let lines: String = lines.iter().map(|line| format!("- {line}.\n")).collect();
            format!("\n## {title}\n\n{lines}")
        }
        Part::Tables(title, blocks, note) if !blocks.is_empty() => {
            let tables: String = blocks.iter().map(markdown_table).collect();
            format!("\n## {title}\n{tables}\n{note}\n")
        }
        Part::Text(title, text) if !text.is_empty() => format!("\n## {title}\n\n```text\n{text}\n```\n"),
        _ => String::new(),
    }
}

fn markdown_table(block: &Block) -> String {
    let title = match block.title.as_str() {
        "" => String::new(),
        title => format!("\n### {title}\n"),
    };
    let mut out = format!(
        "{title}\n| {} |\n|{}{}\n",
        block.header.join(" | "),
        ":--|".repeat(block.words),
        "--:|".repeat(block.header.len() - block.words)
    );
    for row in &block.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out
}
