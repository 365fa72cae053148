//! What a reader has to know beside the figures: cautions, the instrument, the machine, the prices, the plan.
//!
//! In: a report's notes. Out: the page's last sections. Knows nothing of the figures.

use super::markup::{escape, with_links};
use crate::content::Report;
use crate::content::instrument::Instrument;
use std::fmt::Write as _;

/// Points that are not valid, and everything else a reader has to know.
pub(super) fn cautions(cautions: &[String]) -> String {
    if cautions.is_empty() {
        return "<p>Every point is valid, and nothing shared the machine's cores with the server.</p>".to_owned();
    }
    list(cautions.iter().map(|caution| escape(caution)))
}

/// Noise floor and self-check.
pub(super) fn instrument(instrument: &Instrument<'_>) -> String {
    let mut out = format!("<p>{}.</p>", escape(&instrument.noise_floor));
    for certificate in &instrument.certificates {
        let _ = write!(out, "<p>{}.</p>", escape(&certificate.text));
    }
    if instrument.checks.is_empty() {
        return out;
    }
    out += "<div class=\"scroll\"><table><thead><tr><th>self-check</th><th>expected</th><th>measured</th><th></th></tr>\
            </thead><tbody>";
    for line in &instrument.checks {
        let (class, word) = if line.check.passed {
            ("valid", "passed")
        } else {
            ("invalid", "failed")
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td><span class=\"badge {class}\">{word}</span></td></tr>",
            escape(&line.name),
            escape(&line.check.expected),
            escape(&line.check.measured)
        );
    }
    out + "</tbody></table></div>"
}

/// The machine and the software.
pub(super) fn environment(facts: &[(String, String)]) -> String {
    let mut out = String::from("<dl>");
    for (name, value) in facts {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out + "</dl>"
}

/// The prices with their sources.
pub(super) fn prices(sources: Option<&[String]>) -> String {
    match sources {
        None => "<p>The plan named no prices.</p>".to_owned(),
        Some(sources) => {
            "<p>$/10k inferences = (instance $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price + bytes \
             per inference × price) × 10,000, at list prices:</p>"
                .to_owned()
                + &list(sources.iter().map(|source| with_links(source)))
        }
    }
}

/// The plan as read, and the hashes of the files used.
pub(super) fn plan(report: &Report<'_>) -> String {
    let mut out = format!(
        "<details><summary>As read</summary><pre>{}</pre></details>",
        plain(report.plan)
    );
    out += "<details><summary>Configuration files by SHA-256</summary><pre>";
    for (path, hash) in report.config_sha256 {
        let _ = writeln!(out, "{}  {}", plain(hash), plain(path));
    }
    out + "</pre></details>"
}

/// Escaped, with its line breaks as they are.
pub(super) fn plain(text: &str) -> String {
    escape(text).replace("&#10;", "\n")
}

fn list(items: impl Iterator<Item = String>) -> String {
    let mut out = String::from("<ul class=\"plain\">");
    for item in items {
        let _ = write!(out, "<li>{item}</li>");
    }
    out + "</ul>"
}
