//! A profile as text, for the end of `calibrate`.

use std::path::Path;
use tierlab_analysis::record::samples_needed;
use tierlab_instrument::units::{NONE, bytes, digits3, latency};
use tierlab_report::parts::{Table, text_table};
use tierlab_storage::wrappers::emulated::{Recorded, RecordedPoint};

/// Ratio between rounds from which a change is shown.
const DRIFTS: f64 = 1.1;

pub(super) fn text(profile: &Recorded, out: &Path) -> String {
    let header = ["read", "depth", "p50", "p95", "p99", "reads/s", "MB/s", "reads"];
    let rows = profile.points.iter().map(|point| row(profile, point));
    let mut lines = vec![profile.label()];
    lines.extend(text_table(&Table::of_rows("", &header, 1, rows)));
    lines.extend(sentences(profile));
    lines.push(format!(
        "replay it over another tier: --set emulated.profile={0}, or [emulated] with profile = \"{0}\" in its TOML",
        out.display()
    ));
    lines.join("\n") + "\n"
}

fn has_p99(point: &RecordedPoint) -> bool {
    point.calls >= samples_needed(0.99)
}

fn row(profile: &Recorded, point: &RecordedPoint) -> Vec<String> {
    let at = |share: f64| {
        let mut known = profile.shares.iter().zip(&point.latency_us);
        let us = known.find(|(known, _)| **known >= share);
        us.map_or_else(|| NONE.to_owned(), |(_, us)| latency(*us))
    };
    vec![
        bytes(point.bytes),
        point.depth.to_string(),
        at(0.5),
        at(0.95),
        match has_p99(point) {
            true => at(0.99),
            false => NONE.to_owned(),
        },
        digits3(point.calls_per_s),
        digits3(point.calls_per_s * point.bytes as f64 / 1e6),
        point.calls.to_string(),
    ]
}

fn sentences(profile: &Recorded) -> Vec<String> {
    let mut said = Vec::new();
    let limits = &profile.limits;
    let mb = |bytes: u64| digits3(bytes as f64 / 1e6);
    if let Some(bytes) = limits.connection_bytes_per_s {
        said.push(format!("one read: {} MB/s after its first byte", mb(bytes)));
    }
    let seen = |is_limit: bool| match is_limit {
        true => "a limit: more depth did not raise it",
        false => "no limit reached",
    };
    said.push(format!(
        "all reads: {} MB/s ({}), {} reads/s ({})",
        mb(limits.total_bytes_per_s),
        seen(limits.total_is_limit),
        limits.requests_per_s,
        seen(limits.requests_is_limit)
    ));
    said.extend(profile.errors.iter().map(|error| {
        let percent = error.rate * 100.0;
        format!("errors: {} in {percent:.3} % of the reads", error.kind)
    }));
    let disturbed = |note: &&String| note.starts_with("disturbed: ");
    said.extend(profile.origin.notes.iter().filter(disturbed).cloned());
    let medians = || profile.rounds.iter().map(|round| round.p50_ratio);
    let (least, most) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
    if most > least * DRIFTS {
        said.push(format!(
            "drift: medians of rounds range from {least:.2} to {most:.2} times the overall median; a replay draws from all rounds"
        ));
    }
    if !profile.points.iter().all(has_p99) {
        let needed = samples_needed(0.99);
        said.push(format!("n/a: fewer than {needed} reads; raise --rounds or --seconds"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_storage::wrappers::emulated::{
        RecordedEnvironment, RecordedLimits, RecordedOrigin, RecordedRound, SCHEMA,
    };

    #[test]
    fn it_says_what_was_seen_and_what_cannot_be_said() {
        let point = |depth: u32, calls: u64| RecordedPoint {
            bytes: 4096,
            depth,
            calls,
            calls_per_s: 250.0,
            latency_us: vec![100.0, 200.0, 300.0, 4000.0, 5000.0],
        };
        let round = |p50_ratio: f64| RecordedRound {
            at_s: 0.0,
            p50_ratio,
            p99_ratio: 1.0,
        };
        let profile = Recorded {
            schema: SCHEMA,
            shares: vec![0.0, 0.5, 0.95, 0.99, 1.0],
            origin: RecordedOrigin {
                date: "2026-11-23T10:00:00Z".to_owned(),
                place: "here".to_owned(),
                tier: "s3".to_owned(),
                notes: Vec::new(),
                environment: RecordedEnvironment::default(),
            },
            limits: RecordedLimits::default(),
            errors: Vec::new(),
            rounds: vec![round(0.9), round(1.2)],
            points: vec![point(1, 1000), point(8, 100)],
        };
        let text = text(&profile, Path::new("p.toml"));
        for wanted in [
            "200 µs",
            "300 µs",
            "4.00 ms",
            "n/a",
            "drift: ",
            "emulated.profile=p.toml",
            "no limit reached",
        ] {
            assert!(text.contains(wanted), "no `{wanted}` in\n{text}");
        }
        let steady = Recorded {
            rounds: vec![round(1.0)],
            points: vec![point(1, 1000)],
            ..profile
        };
        let text = super::text(&steady, Path::new("p.toml"));
        assert!(!text.contains("drifted") && !text.contains("n/a"), "{text}");
    }
}
