//! `report.md`.

use super::kept::Kept;
use super::rows::{HEADER, NOTE, families, row};
use super::sentences;

/// The page.
pub(super) fn markdown(kept: &Kept) -> String {
    let mut out = format!("# {}\n\n{}\n", kept.name, sentences::facts(kept).join("  \n"));
    for family in families(&kept.points) {
        out += &format!(
            "\n## {}\n\n| {} |\n|{}\n",
            family.name,
            HEADER.join(" | "),
            "--:|".repeat(HEADER.len())
        );
        for summary in &family.points {
            out += &format!(
                "| {} |\n",
                row(summary).map(|cell| cell.replace('|', "\\|")).join(" | ")
            );
        }
    }
    out += &format!("\n{NOTE}\n");
    for (title, lines) in [
        ("Beside other tools", sentences::peers(&kept.points)),
        ("To beware of", sentences::cautions(kept)),
    ] {
        if !lines.is_empty() {
            out += &format!("\n## {title}\n\n");
            out.extend(lines.iter().map(|line| format!("- {line}.\n")));
        }
    }
    let commands = sentences::commands(&kept.points);
    if !commands.is_empty() {
        out += &format!("\n## The tools' commands\n\n```text\n{}\n```\n", commands.join("\n"));
    }
    out + &format!("\n## The plan\n\n```toml\n{}\n```\n", kept.plan.trim_end())
}
