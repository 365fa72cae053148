//! What is known of the instrument: the noise floor, the certificates of the self-check, and their lines.
//!
//! In: a run. Out: plain text for every renderer. Judges no certificate.

use super::words;
use tierlab_analysis::record::{CarriedCertificate, Check, Run, VALID_DAYS};

/// What is known of the instrument.
pub(crate) struct Instrument<'a> {
    /// The noise floor in a sentence.
    pub(crate) noise_floor: String,
    /// Whether it was measured at all.
    pub(crate) has_noise_floor: bool,
    /// A sentence on every certificate of the run, or that there is none.
    pub(crate) certificates: Vec<CertificateSentence>,
    /// The lines of the run's own self-check, or else of the certificates that are proofs.
    pub(crate) checks: Vec<CheckLine<'a>>,
}

/// A certificate in a sentence.
pub(crate) struct CertificateSentence {
    /// The sentence, without its full stop.
    pub(crate) text: String,
    /// Whether there is a certificate, and it proves nothing of the run.
    pub(crate) is_refused: bool,
}

/// A line of a self-check.
pub(crate) struct CheckLine<'a> {
    /// What was checked, behind the part of the run that it is of.
    pub(crate) name: String,
    /// The rest of it.
    pub(crate) check: &'a Check,
}

impl<'a> Instrument<'a> {
    /// Of a run.
    pub(crate) fn of(run: &'a Run) -> Self {
        let noise_floor = words::noise_floor(run);
        let nothing = (run.certificates.is_empty() && run.selfcheck.is_empty()).then(|| CertificateSentence {
            text: format!("There is no self-check with this run; {}", how_to()),
            is_refused: false,
        });
        let certificates = run.certificates.iter().map(|carried| CertificateSentence {
            text: sentence(carried),
            is_refused: carried.certificate.is_some() && carried.proof().is_none(),
        });
        Self {
            has_noise_floor: noise_floor.is_some(),
            noise_floor: noise_floor.unwrap_or_else(|| "The noise floor was not measured in this run".to_owned()),
            certificates: certificates.chain(nothing).collect(),
            checks: checks(run),
        }
    }

    /// The certificates that the run found and that prove nothing of it.
    pub(crate) fn refused(&self) -> impl Iterator<Item = &str> {
        self.sentences(true)
    }

    /// Every other certificate, or the lack of one.
    pub(crate) fn not_refused(&self) -> impl Iterator<Item = &str> {
        self.sentences(false)
    }

    fn sentences(&self, are_refused: bool) -> impl Iterator<Item = &str> {
        let of_kind = self
            .certificates
            .iter()
            .filter(move |sentence| sentence.is_refused == are_refused);
        of_kind.map(|sentence| sentence.text.as_str())
    }
}

fn checks(run: &Run) -> Vec<CheckLine<'_>> {
    if !run.selfcheck.is_empty() {
        return run.selfcheck.iter().map(|check| line(None, check)).collect();
    }
    let proofs = run.certificates.iter();
    let proofs = proofs.filter_map(|carried| Some((carried.part.as_deref(), carried.proof()?)));
    proofs
        .flat_map(|(part, proof)| proof.checks.iter().map(move |check| line(part, check)))
        .collect()
}

fn line<'a>(part: Option<&str>, check: &'a Check) -> CheckLine<'a> {
    let name = match part {
        Some(part) => format!("{part}: {}", check.name),
        None => check.name.clone(),
    };
    CheckLine { name, check }
}

fn sentence(carried: &CarriedCertificate) -> String {
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
