//! A report for the terminal.

use super::{Page, Part};
use tierlab_report::parts;

impl Page<'_> {
    /// Tables, then lists.
    pub(crate) fn text(&self) -> String {
        let mut tables = String::new();
        let mut lists = String::new();
        for part in &self.parts {
            match part {
                Part::Tables { blocks, note, .. } if !blocks.is_empty() => {
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
                Part::List { title, lines } if !lines.is_empty() => {
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
    parts::table(&columns.collect::<Vec<_>>(), rows).join("\n")
}
