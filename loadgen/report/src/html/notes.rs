//! Evidence: cautions, the instrument, the requests, the machine, the prices, the plan.
//!
//! In: a report. Out: the page's last section. Knows nothing of the figures.

use super::markup::{findings, table, with_links};
use crate::content::Report;
use maud::{Markup, html};

/// Everything that the figures rest on.
pub(super) fn evidence(report: &Report<'_>) -> Markup {
    html! {
        h3 { "What to beware of" }
        @if report.cautions.is_empty() {
            p { "Every point is valid, and nothing shared the machine's cores with the server." }
        }
        (findings(&report.cautions))
        h3 { "The instrument" }
        (findings(&report.instrument.sound()))
        @if let Some(checks) = &report.instrument.checks { (table(checks, "")) }
        @if !report.requests.is_empty() { h3 { "The requests" } (findings(&report.requests)) }
        h3 { "The machine" }
        dl { @for (name, value) in &report.environment { dt { (name) } dd { (value) } } }
        h3 { "Prices" }
        (prices(report))
        h3 { "The plan" }
        details { summary { "As read" } pre tabindex="0" { (report.run.plan_toml) } }
        details {
            summary { "Configuration files by SHA-256" }
            pre tabindex="0" { @for (path, hash) in &report.run.config_sha256 { (hash) "  " (path) "\n" } }
        }
    }
}

/// Prices with their sources.
fn prices(report: &Report<'_>) -> Markup {
    let Some(pricing) = &report.run.pricing else {
        return html! { p { "The plan named no prices." } };
    };
    html! {
        p {
            "$/10k inferences = (instance $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price + bytes per inference × \
             price) × 10,000, at list prices:"
        }
        ul.plain { @for source in &pricing.sources { li { (with_links(source)) } } }
    }
}
