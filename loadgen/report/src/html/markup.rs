//! Markup that more than one part of a page has.
//!
//! In: text. Out: HTML. Everything that comes out of a run was written by others, names, plans and prices among it: all markup is
//! made by `maud`, which escapes what it is given.

use maud::{Markup, html};

/// Sentences as a list, each with its full stop; nothing for none.
#[must_use]
pub fn findings(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            ul.findings { @for line in lines { li { (line) "." } } }
        }
    }
}

/// A section that is closed until it is opened; nothing without a body.
#[must_use]
pub fn closed(id: &str, title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            details.part id=(id) {
                summary { h2 { (title) } }
                (body)
            }
            "\n"
        }
    }
}

/// Content that scrolls sideways by itself where the screen is too narrow, by the keyboard too.
#[must_use]
pub fn scroll(label: &str, body: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(label) { (body) } }
}

/// What explains the figures below it.
pub(super) fn soft(text: &str) -> Markup {
    html! { p.soft { (text) } }
}

/// The class of a cell that holds a number.
pub(super) fn number(is_number: bool) -> Option<&'static str> {
    is_number.then_some("n")
}

/// The ends of an interval, as text.
pub(super) fn interval(lo: &str, hi: &str) -> Markup {
    html! { span.ci { "[" (lo) "–" (hi) "]" } }
}

/// Text whose `https://` addresses are links.
pub(super) fn with_links(text: &str) -> Markup {
    html! {
        @for (index, word) in text.split(' ').enumerate() {
            @if index > 0 { " " }
            @let address = word.trim_end_matches([',', ';', '.', ')']);
            @if address.starts_with("https://") {
                a href=(address) rel="noreferrer" { (address) }
                (&word[address.len()..])
            } @else {
                (word)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_become_links_and_nothing_else_does() {
        assert_eq!(
            with_links("see https://a.org/?x=1&y=2, <b>").into_string(),
            "see <a href=\"https://a.org/?x=1&amp;y=2\" rel=\"noreferrer\">https://a.org/?x=1&amp;y=2</a>, &lt;b&gt;"
        );
        assert_eq!(with_links("javascript:alert(1)").into_string(), "javascript:alert(1)");
    }

    proptest! {
        #[test]
        fn nothing_escapes(text in ".{0,80}") {
            let out = with_links(&text.replace("https://", "")).into_string();
            prop_assert!(!out.contains(['<', '>', '"']));
        }
    }
}
