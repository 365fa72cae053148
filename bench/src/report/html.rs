//! `report.html`. Its tables are complete without scripts.

use super::{Bars, Page, Part, or_none};
use maud::{Markup, PreEscaped, html};
use tierlab_report::document;
use tierlab_report::parts::{Section, findings, html_table, prose, sections};

const STYLE: PreEscaped<&str> = PreEscaped(
    ".levels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:6px 26px}\
     .level{display:grid;grid-template-columns:8.5em 1fr 6em;gap:8px;align-items:center;font-size:13px;line-height:1.7}\
     .level i{display:block;height:.8em;background:var(--heat);min-width:1px}.level b{font-weight:400;text-align:right;white-space:nowrap}",
);

/// Maximum number of remarks on the first screen.
const REMARKS: usize = 5;

impl Page<'_> {
    /// The report as one HTML page: the first screen, the contents, and the closed sections.
    pub(crate) fn html(&self) -> String {
        let run = self.run;
        let all_findings = ("Findings", findings(&self.findings));
        let plan = ("The plan", pre(run.plan.trim_end()));
        let parts = std::iter::once(all_findings).chain(self.parts.iter().map(section));
        let parts = parts.chain([plan]).enumerate();
        let parts = parts.map(|(index, (title, body))| (format!("part{index}"), title, body));
        let parts: Vec<Section> = parts.collect();
        let body = html! {
            style { (STYLE) }
            h1 { (run.name) }
            div.facts { @for fact in self.all_facts() { span { (fact) } } }
            p.verdicts { (self.all_badges()) }
            p.said { (prose(self.sentence())) "." }
            (html_table(&self.overview, "brief ranking"))
            (self.chart)
            (findings(&self.remarks()[..self.remarks().len().min(REMARKS)]))
            (sections(&parts))
        };
        document("tierlab-storage-bench", &run.name, &body)
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

/// Title and body of a part.
fn section(part: &Part) -> (&'static str, Markup) {
    match part {
        Part::List(title, lines) => (*title, findings(lines)),
        Part::Html(title, body) => (*title, body.clone()),
        Part::Tables(title, tables, note) => {
            let body = html! {
                @for table in tables { (with_heading(table.title(), &html_table(table, "full"))) }
                @if !tables.is_empty() { p.soft { (prose(note)) } }
            };
            (*title, body)
        }
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

/// Text as it is; nothing for no text.
pub(crate) fn pre(text: &str) -> Markup {
    html! {
        @if !text.is_empty() { pre tabindex="0" { (text) } }
    }
}

/// Charts of bars beside each other.
pub(crate) fn levels(charts: &[Bars]) -> Markup {
    html! { div.levels { @for bars in charts { (chart(bars)) } } }
}

/// A missing value has no bar.
fn chart(chart: &Bars) -> Markup {
    let values = chart.bars.iter().filter_map(|(_, value)| *value);
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    html! {
        div {
            p.chart-title { (chart.title) }
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
