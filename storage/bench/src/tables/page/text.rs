//! For the terminal.

use super::{Block, Page};
use crate::report::STYLE;
use comfy_table::{CellAlignment, ContentArrangement, Table};

impl Page<'_> {
    /// Every table, and what it says.
    pub(in crate::tables) fn text(&self) -> String {
        let mut out = String::new();
        for section in self.sections.iter().filter(|section| !section.blocks.is_empty()) {
            for block in &section.blocks {
                let title = match block.title.as_str() {
                    "" => String::new(),
                    title => format!("{title}\n"),
                };
                out += &format!("\n{title}{}\n", table(block));
            }
            out += &format!("{}\n", section.note);
        }
        out += "\n";
        out.extend(self.findings.iter().map(|line| format!("  {line}\n")));
        out
    }
}

fn table(block: &Block) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(block.header.iter());
    for row in &block.rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(block.words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
