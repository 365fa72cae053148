//! What a run is shown as: text, Markdown, CSV and one page of HTML that loads nothing. In: what is kept. Out: text.

mod chart;
mod csv;
mod html;
mod rows;

pub(super) use csv::csv;
pub(super) use html::html;

use super::kept::Kept;
use super::statements::findings;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use rows::{Block, COMPUTED_NOTE, NOTE, computed, facts, measured};

fn said(kept: &Kept) -> Vec<String> {
    findings(&kept.measured, &kept.computed, kept.prices.as_ref())
}

fn table(block: &Block) -> Table {
    let mut table = Table::new();
    table
        .load_style(crate::report::STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(block.header.iter());
    for row in &block.rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// For the terminal.
pub(super) fn text(kept: &Kept) -> String {
    let mut out = String::new();
    for (blocks, note) in [(measured(kept), NOTE), (computed(kept), COMPUTED_NOTE)] {
        for block in &blocks {
            out += &format!("\n{}\n{}\n", block.title, table(block));
        }
        out += &format!("{note}\n");
    }
    out += "\n";
    out.extend(said(kept).iter().map(|line| format!("  {line}\n")));
    out
}

/// `report.md`.
pub(super) fn markdown(kept: &Kept) -> String {
    let mut out = format!("# {}\n\n{}\n", kept.name, facts(kept).join("  \n"));
    out.extend(said(kept).iter().map(|line| format!("\n- {line}.")));
    out += "\n";
    for (title, blocks, note) in [
        ("Measured", measured(kept), NOTE),
        ("Computed", computed(kept), COMPUTED_NOTE),
    ] {
        out += &format!("\n## {title}\n\n{note}\n");
        for block in &blocks {
            out += &format!(
                "\n### {}\n\n| {} |\n|:--|{}\n",
                block.title,
                block.header.join(" | "),
                "--:|".repeat(block.header.len() - 1)
            );
            out.extend(block.rows.iter().map(|row| format!("| {} |\n", row.join(" | "))));
        }
    }
    out + &format!("\n## The plan\n\n```toml\n{}\n```\n", kept.plan.trim_end())
}
