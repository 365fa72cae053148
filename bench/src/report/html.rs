//! `report.html`. Its tables are complete without scripts.

use super::{Bars, Block, Page, Part, or_none};
use maud::{Markup, PreEscaped, html};
use tierlab_report::document;
use tierlab_report::parts::{closed, findings, html_table};

const STYLE: PreEscaped<&str> = PreEscaped(
    ".levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}.levels h4{margin:8px 0 4px;\
     font-size:13.5px}.level{display:grid;grid-template-columns:8.5em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}",
);

impl Page<'_> {
    /// The report as one HTML page.
    pub(crate) fn html(&self) -> String {
        let run = self.run;
        let body = html! {
            style { (STYLE) }
            h1 { (run.name) }
            div.facts { @for fact in self.all_facts() { span { (fact) } } }
            p { (self.all_badges()) }
            @for (index, part) in self.parts.iter().enumerate() {
                (html_of(part, (Some(index) != self.open_tables()).then_some(&*format!("part{index}"))))
            }
            (closed("plan", "The plan", &pre(run.plan.trim_end())))
        };
        document("tierlab-storage-bench", &run.name, &body)
    }

    /// Tables that start open: the first ones of a page without charts.
    fn open_tables(&self) -> Option<usize> {
        if self.parts.iter().any(|part| matches!(part, Part::Charts(..))) {
            return None;
        }
        self.parts.iter().position(|part| matches!(part, Part::Tables(..)))
    }

    fn all_badges(&self) -> Markup {
        html! {
            @for (class, text) in &self.badges { span.badge.(class) { (text) } " " }
            @if self.run.interrupted { span.badge.invalid { "stopped early" } " " }
            @for word in ["emulated", "embedded"] {
                @if self.run.tiers.values().flatten().any(|note| note.contains(word)) {
                    span.badge.emulated { "partly " (word) } " "
                }
            }
        }
    }
}

/// One part; tables and text start closed if they have an `id`.
fn html_of(part: &Part, id: Option<&str>) -> Markup {
    let collapsible = |title: &str, body: &Markup| match id {
        Some(id) => closed(id, title, body),
        None => section(title, body),
    };
    match part {
        Part::List(title, lines) => section(title, &findings(lines)),
        Part::Charts(title, html) => section(title, html),
        Part::Tables(title, blocks, note) => collapsible(
            title,
            &html! {
                @for one in blocks { (block(one)) }
                @if !blocks.is_empty() { p.soft { (note) } }
            },
        ),
        Part::Text(title, text) => collapsible(title, &pre(text)),
    }
}

/// A section; nothing without a body.
fn section(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() { section { h2 { (title) } (body) } "\n" }
    }
}

/// A body below a smaller heading; nothing without a body.
pub(crate) fn with_heading(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            @if !title.is_empty() { h3 { (title) } }
            (body)
        }
    }
}

fn pre(text: &str) -> Markup {
    html! {
        @if !text.is_empty() { pre tabindex="0" { (text) } }
    }
}

fn block(block: &Block) -> Markup {
    let body = html! {
        @if !block.bars.is_empty() {
            div.levels { @for bars in &block.bars { (chart(bars)) } }
        }
        (html_table(&block.table, "full"))
    };
    with_heading(block.table.title(), &body)
}

/// A missing value has no bar.
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
                    b { (or_none(*value, chart.text)) }
                }
            }
        }
    }
}
