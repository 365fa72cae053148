//! Heat maps: blocks down, depths across, the stronger the more. A table, so that it reads without a script too.

use super::rows::Family;
use crate::summary::Summary;
use crate::units::{bytes_text, digits3, time_text};
use std::collections::BTreeSet;
use tierlab_report::parts::escape;

/// Its style, beside that of all pages.
pub(super) const STYLE: &str = "<style>.map{width:auto;margin:0}.map td,.map th{text-align:right;min-width:5.2em}.map td.cell{border:1px solid var(--bg)}\
     .map td.strong{color:var(--bg)}.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:4px 22px}\
     .maps>div{min-width:0}.maps h4{margin:8px 0 0;font-size:13.5px}</style>";

/// Both maps of a family; nothing where it has a single cell.
pub(super) fn maps(family: &Family<'_>) -> String {
    if family.points.len() < 2 {
        return String::new();
    }
    let rate = map(family, "MB/s", |summary| Some(summary.mb_per_s.value), digits3, false);
    let latency = map(
        family,
        "p50 latency",
        |summary| summary.p50_us.map(|us| us.value),
        time_text,
        true,
    );
    format!("<div class=\"maps\">{rate}{latency}</div>")
}

fn map(
    family: &Family<'_>,
    title: &str,
    value: fn(&Summary) -> Option<f64>,
    text: fn(f64) -> String,
    logarithmic: bool,
) -> String {
    let scale = |value: f64| if logarithmic { value.max(1e-3).ln() } else { value };
    let values: Vec<f64> = family
        .points
        .iter()
        .filter_map(|summary| value(summary))
        .map(scale)
        .collect();
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = if logarithmic {
        values.iter().copied().fold(f64::INFINITY, f64::min)
    } else {
        0.0
    };
    let depths: BTreeSet<u32> = family.points.iter().map(|summary| summary.point.depth).collect();
    let blocks: BTreeSet<u64> = family.points.iter().map(|summary| summary.point.block_bytes).collect();
    let mut out = format!(
        "<div><h4>{}</h4><div class=\"scroll\"><table class=\"map\"><thead><tr><th>block \\ depth</th>",
        escape(title)
    );
    out.extend(depths.iter().map(|depth| format!("<th>{depth}</th>")));
    out += "</tr></thead><tbody>";
    for block in &blocks {
        out += &format!("<tr><td>{}</td>", bytes_text(*block));
        for depth in &depths {
            let here = |summary: &&&Summary| summary.point.depth == *depth && summary.point.block_bytes == *block;
            out += &match family.points.iter().find(here).and_then(|summary| value(summary)) {
                Some(value) => {
                    let strength = (scale(value) - low) / (high - low).max(1e-12);
                    cell(&text(value), strength)
                }
                None => "<td class=\"n\">n/a</td>".to_owned(),
            };
        }
        out += "</tr>";
    }
    out + "</tbody></table></div></div>"
}

/// Text turns to the colour of the ground where the cell is nearer to the ink.
fn cell(text: &str, strength: f64) -> String {
    let percent = (8.0 + 84.0 * strength.clamp(0.0, 1.0)).round();
    let class = if percent > 46.0 { "cell strong" } else { "cell" };
    format!(
        "<td class=\"{class}\" style=\"background:color-mix(in srgb,var(--heat) {percent}%,var(--bg))\">{}</td>",
        escape(text)
    )
}
