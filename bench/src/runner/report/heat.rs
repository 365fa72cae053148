//! Heat maps: blocks down, depths across, a stronger colour for more. Each is a table, which is readable without a
//! script.

use super::Family;
use crate::report::under;
use crate::runner::summary::Summary;
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeSet;
use tierlab_instrument::units::{bytes, digits3, latency};

const STYLE: PreEscaped<&str> = PreEscaped(
    ".map{width:auto;margin:0}.map td,.map th{text-align:right;min-width:5.2em}.map td.cell{border:1px solid var(--bg)}\
     .map td.strong{color:var(--bg)}.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:4px 22px}\
     .maps>div{min-width:0}.maps h4{margin:8px 0 0;font-size:13.5px}",
);

/// Maps of the families that have more than one cell; empty without any.
pub(super) fn maps(families: &[Family<'_>]) -> Markup {
    let wide = || families.iter().filter(|family| family.points.len() > 1);
    html! {
        @if wide().next().is_some() { style { (STYLE) } }
        @for family in wide() { (under(&family.name, &both(family))) }
    }
}

fn both(family: &Family<'_>) -> Markup {
    let rate = map(family, "MB/s", |summary| Some(summary.mb_per_s.value), digits3, false);
    let latency = map(
        family,
        "p50 latency",
        |summary| summary.p50_us.map(|us| us.value),
        latency,
        true,
    );
    html! { div.maps { (rate) (latency) } }
}

fn map(
    family: &Family<'_>,
    title: &str,
    value: fn(&Summary) -> Option<f64>,
    text: fn(f64) -> String,
    logarithmic: bool,
) -> Markup {
    let scale = |value: f64| if logarithmic { value.max(1e-3).ln() } else { value };
    let points = &family.points;
    let values = || points.iter().filter_map(|summary| value(summary)).map(scale);
    let high = values().fold(f64::NEG_INFINITY, f64::max);
    let low = if logarithmic {
        values().fold(f64::INFINITY, f64::min)
    } else {
        0.0
    };
    let strength = |value: f64| (scale(value) - low) / (high - low).max(1e-12);
    let depths: BTreeSet<u32> = points.iter().map(|summary| summary.point.depth).collect();
    let blocks: BTreeSet<u64> = points.iter().map(|summary| summary.point.block_bytes).collect();
    let at = |block: u64, depth: u32| {
        let mut here = points
            .iter()
            .filter(|summary| summary.point.depth == depth && summary.point.block_bytes == block);
        here.next().and_then(|summary| value(summary))
    };
    html! {
        div {
            h4 { (title) }
            div.scroll {
                table.map {
                    thead { tr { th { "block \\ depth" } @for depth in &depths { th { (depth) } } } }
                    tbody {
                        @for block in &blocks {
                            tr {
                                td { (bytes(*block)) }
                                @for depth in &depths {
                                    @if let Some(value) = at(*block, *depth) { (cell(&text(value), strength(value))) }
                                    @else { td.n { "n/a" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a cell; its text takes the background's colour if the cell is dark.
fn cell(text: &str, strength: f64) -> Markup {
    let percent = (8.0 + 84.0 * strength.clamp(0.0, 1.0)).round();
    let class = if percent > 46.0 { "cell strong" } else { "cell" };
    let style = format!("background:color-mix(in srgb,var(--heat) {percent}%,var(--bg))");
    html! { td class=(class) style=(style) { (text) } }
}
