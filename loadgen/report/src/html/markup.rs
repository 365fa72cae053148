//! Text as HTML.
//!
//! In: any text. Out: text that a browser shows as it is, in an element or in an attribute. Everything that comes out
//! of a run goes through here: names, plans and prices are written by others.

/// Escapes for element content and for attributes in double quotes. A line break stays one inside an attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push_str("&#10;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes, and makes the `https://` addresses of the text links.
pub(super) fn with_links(text: &str) -> String {
    let mut out = Vec::new();
    for word in text.split(' ') {
        let address = word.trim_end_matches([',', ';', '.', ')']);
        if address.starts_with("https://") {
            let (link, rest) = (escape(address), escape(&word[address.len()..]));
            out.push(format!("<a href=\"{link}\" rel=\"noreferrer\">{link}</a>{rest}"));
        } else {
            out.push(escape(word));
        }
    }
    out.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_become_links_and_nothing_else_does() {
        assert_eq!(
            with_links("see https://a.org/?x=1&y=2, <b>"),
            "see <a href=\"https://a.org/?x=1&amp;y=2\" rel=\"noreferrer\">https://a.org/?x=1&amp;y=2</a>, &lt;b&gt;"
        );
        assert_eq!(with_links("javascript:alert(1)"), "javascript:alert(1)");
    }

    proptest! {
        #[test]
        fn nothing_escapes(text in ".{0,80}") {
            for out in [escape(&text), with_links(&text.replace("https://", ""))] {
                prop_assert!(!out.contains(['<', '>', '"', '\'']));
            }
        }
    }
}
