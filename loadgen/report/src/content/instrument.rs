//! The instrument: its noise floor, and the certificates of the self-check with their checks.
//!
//! In: a run. Out: plain text for every renderer. Judges no certificate.

use super::table::{Cell, Table, text};
use crate::units::{latency_interval, rate, thousands};
use tierlab_analysis::record::{CarriedCertificate, Check, Run, VALID_DAYS};

/// The instrument of a run.
pub(crate) struct Instrument {
    /// Sentences on certificates that are not valid for the run.
    pub(crate) refused: Vec<String>,
    /// Sentences on all other certificates, or on their absence, then on the noise floor.
    pub(crate) sound: Vec<String>,
    /// Checks of the run's own self-check, or else of the valid certificates; `None` without any.
    pub(crate) checks: Option<Table>,
}

impl Instrument {
    /// The instrument of a run.
    pub(crate) fn of(run: &Run) -> Self {
        let none = (run.certificates.is_empty() && run.selfcheck.is_empty())
            .then(|| format!("This run has no self-check; {}", how_to()));
        let is_refused = |carried: &&CarriedCertificate| carried.certificate.is_some() && carried.proof().is_none();
        let (refused, others): (Vec<_>, Vec<_>) = run.certificates.iter().partition(is_refused);
        let floor = noise_floor(run).unwrap_or_else(|| "The noise floor was not measured in this run".to_owned());
        Self {
            refused: refused.into_iter().map(sentence).collect(),
            sound: others.into_iter().map(sentence).chain(none).chain([floor]).collect(),
            checks: checks(run),
        }
    }
}

fn noise_floor(run: &Run) -> Option<String> {
    let point = run.noise_floor.as_ref()?;
    let summary = point.summary.as_ref()?;
    let [p50, p99] = [&summary.p50_us, &summary.p99_us].map(|p| latency_interval(p.as_ref()));
    let (rps, samples) = (rate(point.factors.offered_rps), thousands(summary.samples));
    Some(format!(
        "Noise floor (the same load on a null endpoint, {rps} rps, {samples} samples): p50 {p50}, p99 {p99}"
    ))
}

fn checks(run: &Run) -> Option<Table> {
    let mut rows: Vec<Vec<Cell>> = run.selfcheck.iter().map(|check| line(None, check)).collect();
    if rows.is_empty() {
        let proofs = run.certificates.iter();
        let proofs = proofs.filter_map(|carried| Some((carried.part.as_deref(), carried.proof()?)));
        rows.extend(proofs.flat_map(|(part, proof)| proof.checks.iter().map(move |check| line(part, check))));
    }
    let columns = ["self-check", "expected", "measured", "result"].map(text);
    Table::section("Self-check", "", columns, rows)
}

fn line(part: Option<&str>, check: &Check) -> Vec<Cell> {
    let name = part.map_or_else(|| check.name.clone(), |part| format!("{part}: {}", check.name));
    let result = match check.passed {
        true => Cell::badge("valid", "passed"),
        false => Cell::badge("invalid", "failed"),
    };
    let texts = [&name, &check.expected, &check.measured].map(|text| Cell::plain(text));
    texts.into_iter().chain([result]).collect()
}

fn sentence(carried: &CarriedCertificate) -> String {
    let part = carried.part.as_ref();
    let part = part.map_or_else(String::new, |part| format!("{part}: "));
    let doubts = carried.doubts.join("; ");
    let Some(certificate) = &carried.certificate else {
        return format!("{part}Missing certificate of the self-check ({doubts}); {}", how_to());
    };
    let age = carried.age_s.map(|age_s| format!("{} old", age(age_s)));
    let age = age.unwrap_or_else(|| "age unknown".to_owned());
    let what = format!(
        "certificate of the self-check of {}, {age}, tierlab-loadgen {} of commit {}, on {}, {} cores",
        certificate.made_at,
        certificate.program.version,
        certificate.program.git_commit,
        certificate.machine.cpu,
        certificate.machine.cores
    );
    let checks = certificate.checks.len();
    match carried.doubts.is_empty() {
        true => format!("{part}The instrument is proven: all {checks} checks passed ({what})"),
        false => format!("{part}The {what}, is not valid for this run: {doubts}; {}", how_to()),
    }
}

fn how_to() -> String {
    format!("`tierlab-loadgen selfcheck` makes one, valid on its machine for {VALID_DAYS} days")
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
