//! What stands behind the numbers: what to beware of, the instrument, the machine, the prices, the plan.
//!
//! In: a run. Out: the page's last sections. Knows nothing of the figures.

use super::markup::{escape, with_links};
use crate::content::{cautions, instrument, words};
use crate::units::bytes;
use std::fmt::Write as _;
use tierlab_analysis::record::Run;

/// Points that are not valid, and everything else a reader has to know.
pub(super) fn cautions(run: &Run) -> String {
    let cautions = cautions::cautions(run);
    if cautions.is_empty() {
        return "<p>Every point is valid, and nothing shared the machine's cores with the server.</p>".to_owned();
    }
    list(cautions.iter().map(|caution| escape(caution)))
}

/// Noise floor and self-check.
pub(super) fn instrument(run: &Run) -> String {
    let mut out = match words::noise_floor(run) {
        Some(floor) => format!("<p>{}.</p>", escape(&floor)),
        None => "<p>The noise floor was not measured in this run.</p>".to_owned(),
    };
    for sentence in instrument::sentences(run) {
        let _ = write!(out, "<p>{}.</p>", escape(&sentence));
    }
    let checks = instrument::checks(run);
    if checks.is_empty() {
        return out;
    }
    out += "<div class=\"scroll\"><table><thead><tr><th>self-check</th><th>expected</th><th>measured</th><th></th></tr>\
            </thead><tbody>";
    for (part, check) in checks {
        let (class, word) = if check.passed {
            ("valid", "passed")
        } else {
            ("invalid", "failed")
        };
        let _ = write!(
            out,
            "<tr><td>{}{}</td><td>{}</td><td>{}</td><td><span class=\"badge {class}\">{word}</span></td></tr>",
            escape(&part),
            escape(&check.name),
            escape(&check.expected),
            escape(&check.measured)
        );
    }
    out + "</tbody></table></div>"
}

/// The machine and the software.
pub(super) fn environment(run: &Run) -> String {
    let environment = &run.environment;
    let mut facts: Vec<(String, String)> = vec![
        (
            "CPU".to_owned(),
            format!("{}, {} logical cores", environment.cpu, environment.cores),
        ),
        ("memory".to_owned(), bytes(environment.memory_bytes)),
        ("kernel".to_owned(), environment.kernel.clone()),
        ("ONNX Runtime".to_owned(), environment.onnxruntime.clone()),
        (
            "GPUs".to_owned(),
            if environment.gpus.is_empty() {
                "none".to_owned()
            } else {
                environment.gpus.join(", ")
            },
        ),
        (
            "Tierlab".to_owned(),
            format!("{}, commit {}", environment.version, environment.git_commit),
        ),
        ("on the same cores".to_owned(), environment.shared_cores.join(", ")),
    ];
    facts.extend(
        environment
            .filesystems
            .iter()
            .map(|(path, what)| (format!("file system of {path}"), what.clone())),
    );
    facts.extend(
        environment
            .origins
            .iter()
            .map(|(tier, what)| (format!("tier {tier}"), what.clone())),
    );
    let mut out = String::from("<dl>");
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out + "</dl>"
}

/// The prices with their sources.
pub(super) fn prices(run: &Run) -> String {
    match &run.pricing {
        None => "<p>The plan named no prices.</p>".to_owned(),
        Some(pricing) => {
            "<p>$/10k inferences = (instance $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price + bytes \
             per inference × price) × 10,000, at list prices:</p>"
                .to_owned()
                + &list(pricing.sources.iter().map(|source| with_links(source)))
        }
    }
}

/// The plan as read, and the hashes of the files used.
pub(super) fn plan(run: &Run) -> String {
    let mut out = format!(
        "<details><summary>As read</summary><pre>{}</pre></details>",
        plain(&run.plan_toml)
    );
    out += "<details><summary>Configuration files by SHA-256</summary><pre>";
    for (path, hash) in &run.config_sha256 {
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
