//! What is known of the instrument, in words: the noise floor, the certificates of the self-check, and their lines.
//!
//! In: a run. Out: plain text for table, page and Markdown. Knows nothing of markup, and judges no certificate.

use super::words;
use tierlab_analysis::record::{Carried, Check, Run, VALID_DAYS};

/// The noise floor, the certificates and every line that counts.
pub(crate) fn instrument(run: &Run) -> Vec<String> {
    let floor = words::noise_floor(run).unwrap_or_else(|| "The noise floor was not measured in this run".to_owned());
    let mut lines = vec![floor + "."];
    lines.extend(sentences(run).map(|sentence| sentence + "."));
    lines.extend(checks(run).into_iter().map(|(part, check)| {
        format!(
            "{}: {part}{}, expected {}, measured {}",
            if check.passed { "passed" } else { "FAILED" },
            check.name,
            check.expected,
            check.measured
        )
    }));
    lines
}

/// A sentence on every certificate of the run, or that there is none.
pub(crate) fn sentences(run: &Run) -> impl Iterator<Item = String> {
    let nothing = (run.certificates.is_empty() && run.selfcheck.is_empty())
        .then(|| format!("There is no self-check with this run; {}", how_to()));
    run.certificates.iter().map(sentence).chain(nothing)
}

/// The certificates that the run found and that prove nothing of it.
pub(crate) fn refused(run: &Run) -> impl Iterator<Item = String> {
    run.certificates
        .iter()
        .filter(|carried| is_refused(carried))
        .map(sentence)
}

/// Every other certificate, and the lack of one.
pub(crate) fn not_refused(run: &Run) -> impl Iterator<Item = String> {
    let none = run
        .certificates
        .is_empty()
        .then(|| sentences(run))
        .into_iter()
        .flatten();
    let others = run.certificates.iter().filter(|carried| !is_refused(carried));
    others.map(sentence).chain(none)
}

/// The lines of the run's own self-check, or else of the certificates that are proofs, each with the part of the run
/// that it is of.
pub(crate) fn checks(run: &Run) -> Vec<(String, &Check)> {
    if !run.selfcheck.is_empty() {
        return run.selfcheck.iter().map(|check| (String::new(), check)).collect();
    }
    let of = |carried: &Carried| {
        carried
            .part
            .as_ref()
            .map_or_else(String::new, |part| format!("{part}: "))
    };
    run.certificates
        .iter()
        .filter_map(|carried| Some((of(carried), carried.proof()?)))
        .flat_map(|(part, proof)| proof.checks.iter().map(move |check| (part.clone(), check)))
        .collect()
}

fn is_refused(carried: &Carried) -> bool {
    carried.certificate.is_some() && carried.proof().is_none()
}

fn sentence(carried: &Carried) -> String {
    let part = carried
        .part
        .as_ref()
        .map_or_else(String::new, |part| format!("{part}: "));
    let doubts = carried.doubts.join("; ");
    let Some(certificate) = &carried.certificate else {
        return format!(
            "{part}There is no certificate of the self-check ({doubts}); {}",
            how_to()
        );
    };
    let age = carried
        .age_s
        .map_or_else(|| "age unknown".to_owned(), |age_s| format!("{} old", age(age_s)));
    let what = format!(
        "certificate of the self-check of {}, {age}, tierlab-loadgen {} of commit {}, on {}, {} cores",
        certificate.made_at,
        certificate.program.version,
        certificate.program.git_commit,
        certificate.machine.cpu,
        certificate.machine.cores
    );
    if carried.doubts.is_empty() {
        format!(
            "{part}The instrument is proven: all {} checks passed ({what})",
            certificate.checks.len()
        )
    } else {
        format!("{part}The {what}, is no proof for this run: {doubts}; {}", how_to())
    }
}

fn how_to() -> String {
    format!("`tierlab-loadgen selfcheck` makes one, which the runs of {VALID_DAYS} days on its machine carry")
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
