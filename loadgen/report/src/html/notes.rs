//! What a reader has to know beside the figures: cautions, the instrument, the machine, the prices, the plan.
//!
//! In: a report's notes. Out: the page's last section. Knows nothing of the figures.

use super::markup::{findings, scroll, with_links};
use crate::content::Report;
use crate::content::instrument::{CheckLine, Instrument};
use maud::{Markup, html};

/// Everything that the figures rest on.
pub(super) fn evidence(report: &Report<'_>) -> Markup {
    html! {
        h3 { "What to beware of" } (cautions(&report.cautions))
        h3 { "The instrument" } (instrument(&report.instrument))
        @if !report.requests.is_empty() { h3 { "The requests" } (findings(&report.requests)) }
        h3 { "The machine" } (environment(&report.environment))
        h3 { "Prices" } (prices(report.price_sources))
        h3 { "The plan" } (plan(report))
    }
}

/// Points that are not valid, and everything else a reader has to know.
fn cautions(cautions: &[String]) -> Markup {
    html! {
        @if cautions.is_empty() {
            p { "Every point is valid, and nothing shared the machine's cores with the server." }
        } @else {
            ul.plain { @for caution in cautions { li { (caution) } } }
        }
    }
}

/// Noise floor and self-check.
fn instrument(instrument: &Instrument<'_>) -> Markup {
    html! {
        p { (instrument.noise_floor) "." }
        @for certificate in &instrument.certificates { p { (certificate.text) "." } }
        @if !instrument.checks.is_empty() {
            (scroll("Self-check", &html! {
                table {
                    thead { tr { th { "self-check" } th { "expected" } th { "measured" } th { "result" } } }
                    tbody { @for line in &instrument.checks { (check(line)) } }
                }
            }))
        }
    }
}

fn check(line: &CheckLine<'_>) -> Markup {
    let (class, word) = if line.check.passed {
        ("valid", "passed")
    } else {
        ("invalid", "failed")
    };
    html! {
        tr {
            td { (line.name) }
            td { (line.check.expected) }
            td { (line.check.measured) }
            td { span.badge.(class) { (word) } }
        }
    }
}

/// The machine and the software.
fn environment(facts: &[(String, String)]) -> Markup {
    html! {
        dl { @for (name, value) in facts { dt { (name) } dd { (value) } } }
    }
}

/// The prices with their sources.
fn prices(sources: Option<&[String]>) -> Markup {
    let Some(sources) = sources else {
        return html! { p { "The plan named no prices." } };
    };
    html! {
        p {
            "$/10k inferences = (instance $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price + bytes per inference × \
             price) × 10,000, at list prices:"
        }
        ul.plain { @for source in sources { li { (with_links(source)) } } }
    }
}

/// The plan as read, and the hashes of the files used.
fn plan(report: &Report<'_>) -> Markup {
    html! {
        details { summary { "As read" } pre tabindex="0" { (report.plan) } }
        details {
            summary { "Configuration files by SHA-256" }
            pre tabindex="0" { @for (path, hash) in report.config_sha256 { (hash) "  " (path) "\n" } }
        }
    }
}
