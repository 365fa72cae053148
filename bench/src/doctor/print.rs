//! Findings as text. In: findings, warnings first. Out: text.

use super::finding::{Finding, Level};
use crate::machine::Environment;
use std::fmt::Write as _;
use tierlab_instrument::host::Host;
use tierlab_instrument::units::bytes;

pub(super) fn text(machine: &Environment, tier: Option<&str>, findings: &[Finding]) -> String {
    let Host {
        cpu,
        cores,
        memory_bytes,
        kernel,
    } = &machine.host;
    let mut out = format!(
        "{cores} x {cpu}, {}, Linux {kernel}, tierlab {}\n",
        bytes(*memory_bytes),
        machine.version
    );
    if let Some(tier) = tier {
        let _ = writeln!(out, "tier {tier}");
    }
    let warnings = findings
        .iter()
        .filter(|finding| finding.level == Level::Warning)
        .count();
    let _ = match warnings {
        0 => writeln!(out, "nothing was found that would slow a run"),
        1 => writeln!(out, "one thing would slow a run"),
        count => writeln!(out, "{count} things would slow a run"),
    };
    for finding in findings {
        one(&mut out, finding);
    }
    out
}

fn one(out: &mut String, finding: &Finding) {
    let word = match finding.level {
        Level::Warning => "WARNING",
        Level::Unknown => "unknown",
        Level::Fine => "fine",
    };
    let Finding {
        about,
        found,
        effect,
        measured,
        change,
        ..
    } = finding;
    let _ = writeln!(out, "{word:<9}{about}: {found}");
    if let Some(effect) = effect {
        let _ = writeln!(out, "{:9}effect:   {effect}", "");
        let how = measured.as_deref().unwrap_or("not measured");
        let _ = writeln!(out, "{:9}by how much: {how}", "");
    } else if let Some(measured) = measured {
        let _ = writeln!(out, "{:9}measured: {measured}", "");
    }
    if let Some(change) = change {
        let _ = writeln!(out, "{:9}change:   {change}", "");
    }
}
