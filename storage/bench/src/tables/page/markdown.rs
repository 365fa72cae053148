//! `report.md`.

use super::{Block, Page};

impl Page<'_> {
    /// All of it but the charts.
    pub(in crate::tables) fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n{}\n", self.ran.name, self.all_facts().join("  \n"));
        out.extend(self.findings.iter().map(|line| format!("\n- {line}.")));
        out += "\n";
        for section in self.sections.iter().filter(|section| !section.blocks.is_empty()) {
            out += &format!("\n## {}\n", section.title);
            out.extend(section.blocks.iter().map(table));
            out += &format!("\n{}\n", section.note);
        }
        out + &format!("\n## The plan\n\n```toml\n{}\n```\n", self.ran.plan.trim_end())
    }
}

fn table(block: &Block) -> String {
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
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out
}
