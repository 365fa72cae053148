//! `report.html`. It says everything in tables without a script too.

use super::super::kept::Kept;
use super::rows::{Block, COMPUTED_NOTE, NOTE, computed, facts, measured};
use super::{chart, said};
use tierlab_report::document;
use tierlab_report::parts::escape;

/// The page.
pub(in crate::tables::caching) fn html(kept: &Kept) -> String {
    let items = |lines: &[String], open: &str, close: &str| -> String {
        lines
            .iter()
            .map(|line| format!("{open}{}{close}", escape(line)))
            .collect()
    };
    let mut body = format!(
        "<h1>{}</h1><div class=\"facts\">{}</div><p>",
        escape(&kept.name),
        items(&facts(kept), "<span>", "</span>")
    );
    if kept.interrupted {
        body += "<span class=\"badge invalid\">stopped early</span> ";
    }
    for word in ["emulated", "embedded"] {
        if kept.tiers.values().flatten().any(|note| note.contains(word)) {
            body += &format!("<span class=\"badge emulated\">partly {word}</span> ");
        }
    }
    let list = items(&said(kept), "<li>", ".</li>");
    body += &format!("</p><section><h2>What it says</h2><ul class=\"findings\">{list}</ul></section>\n");
    body += &format!(
        "<section><h2>Hits against memory</h2>{}</section>\n",
        chart::figure(kept)
    );
    for (title, blocks, note) in [
        ("Measured", measured(kept), NOTE),
        ("Computed", computed(kept), COMPUTED_NOTE),
    ] {
        let tables: String = blocks.iter().map(table).collect();
        body += &format!(
            "<section><h2>{title}</h2><p class=\"soft\">{}</p>{tables}</section>\n",
            escape(note)
        );
    }
    body += &format!(
        "<section><h2>The plan</h2><pre>{}</pre></section>",
        escape(kept.plan.trim_end())
    );
    document("tierlab-storage-bench", &escape(&kept.name), &body)
}

fn table(block: &Block) -> String {
    let class = |at: usize| if at == 0 { "" } else { " class=\"n\"" };
    let cells = |tag: &str, cells: &[String]| -> String {
        cells
            .iter()
            .enumerate()
            .map(|(at, cell)| format!("<{tag}{}>{}</{tag}>", class(at), escape(cell)))
            .collect()
    };
    let header: Vec<String> = block.header.iter().map(|head| (*head).to_owned()).collect();
    let rows: String = block
        .rows
        .iter()
        .map(|row| format!("<tr>{}</tr>", cells("td", row)))
        .collect();
    format!(
        "<h3>{}</h3><div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>{rows}</tbody></table></div>\n",
        escape(&block.title),
        cells("th", &header)
    )
}
