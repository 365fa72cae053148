//! A report for the terminal, and `report.md`.

use super::{Block, Page, Part};
use tierlab_report::parts::{markdown_table, text_table};

impl Page<'_> {
    /// Tables, then lists.
    pub(crate) fn text(&self) -> String {
        let mut tables = String::new();
        let mut lists = String::new();
        for part in &self.parts {
            match part {
                Part::Tables(_, blocks, note) if !blocks.is_empty() => {
                    for Block { table, .. } in blocks {
                        let title = match table.title() {
                            "" => String::new(),
                            title => format!("{title}\n"),
                        };
                        tables += &format!("\n{title}{}\n", text_table(table).join("\n"));
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

    /// The report as Markdown, without charts.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n", self.run.name, self.all_facts().join("  \n"));
        out.extend(self.parts.iter().map(markdown_of));
        out + &format!("\n## The plan\n\n```toml\n{}\n```\n", self.run.plan.trim_end())
    }
}

fn markdown_of(part: &Part) -> String {
    match part {
        Part::List(title, lines) if !lines.is_empty() => {
            let lines: String = lines.iter().map(|line| format!("- {line}.\n")).collect();
            format!("\n## {title}\n\n{lines}")
        }
        Part::Tables(title, blocks, note) if !blocks.is_empty() => {
            let tables: String = blocks.iter().map(markdown_block).collect();
            format!("\n## {title}\n{tables}\n{note}\n")
        }
        Part::Text(title, text) if !text.is_empty() => format!("\n## {title}\n\n```text\n{text}\n```\n"),
        _ => String::new(),
    }
}

fn markdown_block(block: &Block) -> String {
    let title = match block.table.title() {
        "" => String::new(),
        title => format!("\n### {title}\n"),
    };
    format!("{title}\n{}", markdown_table(&block.table))
}
