//! `report.html`. It says everything in tables without a script too.

use super::{Bars, Block, Page, Section};
use crate::report::parts::{badges, facts, pre, section, under};
use maud::{Markup, PreEscaped, html};
use tierlab_report::document;
use tierlab_report::parts::{closed, findings, scroll};

const STYLE: PreEscaped<&str> = PreEscaped(
    ".levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}.levels h4{margin:8px 0 4px;\
     font-size:13.5px}.level{display:grid;grid-template-columns:8.5em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}",
);

impl Page<'_> {
    /// The page.
    pub(in crate::tables) fn html(&self) -> String {
        let ran = self.ran;
        let body = html! {
            style { (STYLE) }
            h1 { (ran.name) }
            (facts(&self.all_facts()))
            p { (badges(ran.interrupted, &ran.tiers)) }
            (section("What it says", &findings(&self.findings)))
            @for (index, part) in self.sections.iter().enumerate() {
                @if index == 0 { (section(part.title, &blocks(part))) }
                @else { (closed(&format!("part{index}"), part.title, &blocks(part))) }
            }
            (closed("plan", "The plan", &pre(ran.plan.trim_end())))
        };
        document("tierlab-storage-bench", &ran.name, &body)
    }
}

fn blocks(part: &Section) -> Markup {
    html! {
        (part.curves)
        @for one in &part.blocks { (block(one)) }
        @if !part.note.is_empty() { p.soft { (part.note) } }
    }
}

fn block(block: &Block) -> Markup {
    let body = html! {
        @if !block.bars.is_empty() {
            div.levels { @for bars in &block.bars { (chart(bars)) } }
        }
        (table(block))
    };
    match block.title.as_str() {
        "" => body,
        title => under(title, &body),
    }
}

fn table(block: &Block) -> Markup {
    let label = if block.title.is_empty() {
        "Figures"
    } else {
        &block.title
    };
    let class = |at: usize| (at >= block.words).then_some("n");
    html! {
        (scroll(label, &html! {
            table {
                thead { tr { @for (at, name) in block.header.iter().enumerate() { th class=[class(at)] { (name) } } } }
                tbody {
                    @for row in &block.rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td class=[class(at)] { (cell) } } }
                    }
                }
            }
        }))
        "\n"
    }
}

/// A value that is not there has no bar.
fn chart(chart: &Bars) -> Markup {
    let values = chart.bars.iter().filter_map(|(_, value)| *value);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    html! {
        div {
            h4 { (chart.title) }
            @for (name, value) in &chart.bars {
                div.level {
                    span { (name) }
                    span { i style=(format!("width:{:.1}%", value.unwrap_or(0.0) / most * 100.0)) {} }
                    b { (value.map_or_else(|| "n/a".to_owned(), chart.text)) }
                }
            }
        }
    }
}
