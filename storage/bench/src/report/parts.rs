//! Parts of a page of HTML that every report of this program has. In: text. Out: HTML; nothing for nothing.

use maud::{Markup, html};
use std::collections::BTreeMap;

/// A section; none without a body.
pub(crate) fn section(title: &str, body: &Markup) -> Markup {
    if body.0.is_empty() {
        return Markup::default();
    }
    html! {
        section { h2 { (title) } (body) }
        "\n"
    }
}

/// What stands below a smaller heading.
pub(crate) fn under(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() { h3 { (title) } (body) }
    }
}

/// Text as it is.
pub(crate) fn pre(text: &str) -> Markup {
    html! {
        @if !text.is_empty() { pre tabindex="0" { (text) } }
    }
}

/// What a run was made of.
pub(crate) fn facts(facts: &[String]) -> Markup {
    html! {
        div.facts { @for fact in facts { span { (fact) } } }
    }
}

/// Whether a run ended early, and what of it stood in for something else. `tiers` are their notes.
pub(crate) fn badges(interrupted: bool, tiers: &BTreeMap<String, Vec<String>>) -> Markup {
    html! {
        @if interrupted { span.badge.invalid { "stopped early" } " " }
        @for word in ["emulated", "embedded"] {
            @if tiers.values().flatten().any(|note| note.contains(word)) {
                span.badge.emulated { "partly " (word) } " "
            }
        }
    }
}
