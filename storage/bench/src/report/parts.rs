//! Parts of a page of HTML that every report of this program has. In: text. Out: HTML; nothing for nothing.

use std::collections::BTreeMap;
use tierlab_report::parts::escape;

/// A section; none without a body.
pub(crate) fn section(title: &str, body: &str) -> String {
    match body {
        "" => String::new(),
        body => format!("<section><h2>{}</h2>{body}</section>\n", escape(title)),
    }
}

/// What stands below a smaller heading.
pub(crate) fn under(title: &str, body: &str) -> String {
    match body {
        "" => String::new(),
        body => format!("<h3>{}</h3>{body}", escape(title)),
    }
}

/// Sentences.
pub(crate) fn list(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => {
            let items: String = lines.iter().map(|line| format!("<li>{}.</li>", escape(line))).collect();
            format!("<ul class=\"findings\">{items}</ul>")
        }
    }
}

/// Text as it is.
pub(crate) fn pre(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("<pre>{}</pre>", escape(text)),
    }
}

/// What a run was made of.
pub(crate) fn facts(facts: &[String]) -> String {
    let facts: String = facts
        .iter()
        .map(|fact| format!("<span>{}</span>", escape(fact)))
        .collect();
    format!("<div class=\"facts\">{facts}</div>")
}

/// Whether a run ended early, and what of it stood in for something else. `tiers` are their notes.
pub(crate) fn badges(interrupted: bool, tiers: &BTreeMap<String, Vec<String>>) -> String {
    let mut out = String::new();
    if interrupted {
        out += "<span class=\"badge invalid\">stopped early</span> ";
    }
    for word in ["emulated", "embedded"] {
        if tiers.values().flatten().any(|note| note.contains(word)) {
            out += &format!("<span class=\"badge emulated\">partly {word}</span> ");
        }
    }
    out
}
