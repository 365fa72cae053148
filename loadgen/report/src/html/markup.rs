//! Markup that several parts of a page share.
//!
//! In: text and tables. Out: HTML. Texts of a run, such as names, plans and prices, are untrusted: `maud` makes all
//! markup, and escapes its arguments.

use crate::content::table::{Cell, Table};
use maud::{Markup, html};

/// Sentences as a list, each with its full stop; nothing for none.
pub fn findings(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            ul.findings { @for line in lines { li { (prose(line)) "." } } }
        }
    }
}

/// Text of a sentence: parts between backticks become code, and a backtick without a second one stays.
pub fn prose(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index % 2 == 0 { (part) } @else if index + 1 < parts.len() { code { (part) } } @else { "`" (part) }
        }
    }
}

/// Section of a page: its address, its title and its body.
pub type Section = (String, &'static str, Markup);

/// Returns collapsed sections behind their table of contents. Sections without a body are left out.
pub fn sections(all: &[Section]) -> Markup {
    let all = || all.iter().filter(|(.., body)| !body.0.is_empty());
    html! {
        nav.contents aria-label="Sections" {
            @for (id, title, _) in all() { a href={ "#" (id) } { (title) } }
        }
        "\n"
        @for (id, title, body) in all() {
            details.part id=(id) {
                summary { h2 { (title) } }
                (body)
            }
            "\n"
        }
    }
}

/// Returns content that scrolls sideways on narrow screens, by the keyboard too.
pub fn scroll(label: &str, body: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(label) { (body) } }
}

/// Explanation of the figures below it; nothing for no text.
pub(super) fn soft(text: &str) -> Markup {
    html! { @if !text.is_empty() { p.soft { (prose(text)) } } }
}

/// A table of a class in `page.css`; nothing without rows. On a narrow screen rows of the class `brief` become cards.
pub fn table(table: &Table, class: &str) -> Markup {
    let number = |index: usize| table.columns[index].1.then_some("n");
    let label = |index: usize| class.contains("brief").then(|| table.columns[index].0.as_str());
    let body = html! {
        table class=(class) {
            thead { tr { @for (index, (name, _)) in table.columns.iter().enumerate() { th class=[number(index)] { (name) } } } }
            @for rows in table.rows.split(Vec::is_empty) {
                tbody.next {
                    @for row in rows {
                        tr { @for (index, of) in row.iter().enumerate() {
                            td class=[number(index)] data-label=[label(index)] { (cell(of)) }
                        } }
                    }
                }
            }
        }
    };
    let name = match table.title.as_str() {
        "" => "Figures",
        title => title,
    };
    html! { @if !table.rows.is_empty() { (scroll(name, &body)) "\n" } }
}

fn cell(cell: &Cell) -> Markup {
    let value = html! {
        @if cell.is_file { a href={ "./" (cell.value) } { (cell.value) } } @else { (prose(&cell.value)) }
        @if let Some(badge) = &cell.badge {
            " " span.badge.(badge.class) data-tip=[(!badge.tip.is_empty()).then_some(&badge.tip)] { (badge.label) }
        }
    };
    html! {
        @if cell.tip.is_empty() { (value) } @else { span data-tip=(cell.tip) { (value) } }
        @for below in [&cell.interval, &cell.at] {
            @if !below.is_empty() { span.ci { (below) } }
        }
    }
}

/// A table below its heading, with its explanation before and its sentences behind it.
pub(super) fn side_table(side: &Table) -> Markup {
    html! {
        h3 { (side.title) }
        p.soft { (prose(&side.intro)) "." }
        (table(side, ""))
        (findings(&side.notes))
    }
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
    fn the_contents_link_the_sections_that_have_a_body() {
        let body = html! { p { "text" } };
        let all = [
            ("a", "First", body.clone()),
            ("b", "Empty", Markup::default()),
            ("c", "Last", body),
        ];
        let all = all.map(|(id, title, body)| (id.to_owned(), title, body));
        let page = sections(&all).into_string();
        assert_eq!(page.matches("<a href=").count(), 2);
        assert_eq!(page.matches("<details").count(), 2);
        assert!(
            page.contains("<a href=\"#c\">Last</a>") && page.contains("id=\"c\""),
            "{page}"
        );
        assert!(!page.contains("Empty") && !page.contains(" open"), "{page}");
    }

    #[test]
    fn addresses_become_links_and_nothing_else_does() {
        assert_eq!(
            with_links("see https://a.org/?x=1&y=2, <b>").into_string(),
            "see <a href=\"https://a.org/?x=1&amp;y=2\" rel=\"noreferrer\">https://a.org/?x=1&amp;y=2</a>, &lt;b&gt;"
        );
        assert_eq!(with_links("javascript:alert(1)").into_string(), "javascript:alert(1)");
    }

    #[test]
    fn backticks_mark_code_in_sentences_notes_and_cells() {
        for (text, markup) in [
            ("raise `repeats`", "raise <code>repeats</code>"),
            ("`a` and `<b>`; c", "<code>a</code> and <code>&lt;b&gt;</code>; c"),
            ("one ` alone", "one ` alone"),
            (
                "`a` and one ` alone & more",
                "<code>a</code> and one ` alone &amp; more",
            ),
            ("", ""),
        ] {
            assert_eq!(prose(text).into_string(), markup);
        }
        let line = "raise `repeats`".to_owned();
        let side = Table {
            intro: line.clone(),
            notes: vec![line.clone()],
            ..Table::default()
        };
        for markup in [
            findings(std::slice::from_ref(&line)),
            soft(&line),
            side_table(&side),
            cell(&Cell::plain(&line)),
        ] {
            let markup = markup.into_string();
            assert!(markup.contains("raise <code>repeats</code>"), "{markup}");
            assert!(!markup.contains('`'), "{markup}");
        }
    }

    #[test]
    fn a_file_is_a_link_into_the_folder_of_the_page() {
        for (file, link) in [
            (
                "requests/a&b.parquet",
                "<a href=\"./requests/a&amp;b.parquet\">requests/a&amp;b.parquet</a>",
            ),
            // A run may come from anywhere.
            (
                "javascript:alert(1)",
                "<a href=\"./javascript:alert(1)\">javascript:alert(1)</a>",
            ),
        ] {
            let value = Cell {
                is_file: true,
                ..Cell::plain(file)
            };
            assert_eq!(cell(&value).into_string(), link);
        }
    }

    proptest! {
        #[test]
        fn nothing_escapes(text in ".{0,80}") {
            let out = with_links(&text.replace("https://", "")).into_string();
            prop_assert!(!out.contains(['<', '>', '"']));
            let out = prose(&text).into_string().replace("<code>", "").replace("</code>", "");
            prop_assert!(!out.contains(['<', '>', '"']));
        }
    }
}
