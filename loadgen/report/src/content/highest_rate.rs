//! Highest rate of a curve under the run's objective, in words.
//!
//! In: a run and its findings. Out: a sentence per curve. Knows nothing of markup.

use super::labels::{cache, tier};
use crate::units::rate;
use tierlab_analysis::curves::{Curve, same_but_rate};
use tierlab_analysis::record::{Factors, Finding, NotMet, Run, Slo, SloFinding, SloOutcome};

/// Explanation of the interval of a highest rate.
pub(crate) const EXPLANATION: &str = "Highest rate under the objective: [lo–hi] is from the highest rate that certainly meets it to the lowest \
                                that certainly misses it.";

/// Returns the sentence of each curve of a group.
pub(crate) fn sentences(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let is_of_curve = |factors: &Factors| curves.iter().any(|curve| same_but_rate(curve.factors(), factors));
    let findings = run.findings.iter().filter(|finding| is_of_curve(&finding.factors));
    findings.filter_map(|finding| sentence(run, finding)).collect()
}

/// Returns the highest rate of a curve under the run's objective in one sentence; `None` without an objective.
fn sentence(run: &Run, finding: &Finding) -> Option<String> {
    let slo = run.slo.as_ref()?;
    let factors = &finding.factors;
    let batch = match factors.batch_size {
        0 | 1 => String::new(),
        rows => format!(" ×{rows}"),
    };
    let (tier, cache) = (tier(run, factors.label()), cache(factors));
    let subject = format!("{tier} {cache} {}{batch}", factors.mode);
    let Some(found) = &finding.slo else {
        let objective = slo.objective;
        return Some(format!(
            "{subject}: no rate could be judged by {objective}: too few samples"
        ));
    };
    let mut text = format!("{subject}: {}", boundary(slo, found));
    let per_s = |rates: &[f64]| {
        let rates: Vec<String> = rates.iter().map(|rps| format!("{}/s", rate(*rps))).collect();
        rates.join(", ")
    };
    if let Some(first) = found.unknown.first() {
        let rates: Vec<f64> = found.unknown.iter().map(|one| one.rps).collect();
        text += &format!("; unknown at {} ({})", per_s(&rates), first.why);
    }
    if !found.contradicting_rps.is_empty() {
        text += &format!("; contradicted at {}", per_s(&found.contradicting_rps));
    }
    if let Some(knee) = finding.knee_rps {
        text += &format!("; knee of the p95 at {}/s", rate(knee));
    }
    Some(text)
}

/// Result of a search, with the next rate that misses the objective.
fn boundary(slo: &Slo, found: &SloFinding) -> String {
    let objective = slo.objective;
    let next = |sign: &str, note: &str| {
        let describe = |next: &NotMet| format!("{sign} at {}/s{note} {}", rate(next.rps), next.why);
        found.not_met.as_ref().map_or_else(String::new, describe)
    };
    let Some(highest) = found.highest_rps else {
        let lowest = found.not_met.as_ref().filter(|next| next.rps <= slo.lowest_rps);
        let note = lowest.map_or("", |_| ", the lowest rate of the search,");
        return match found.outcome {
            SloOutcome::Unknown => format!("unknown if any rate meets {objective}{}", next(";", "")),
            _ => format!("no rate meets {objective}{}", next(":", note)),
        };
    };
    let [value, lo, hi] = [highest.value, highest.lo, highest.hi].map(rate);
    match found.outcome {
        SloOutcome::MetAtHighest => format!(
            "{objective} is still met at {value}/s, the highest rate of the search; the server's limit is higher (raise `search.max_rate`)"
        ),
        SloOutcome::MetAsFarAsMeasured => format!("{objective} is still met at {value}/s, the highest rate measured"),
        outcome => {
            let least = rate(highest.lo.max(slo.lowest_rps));
            let known = match highest.lo > 0.0 && highest.hi < slo.highest_rps {
                true => format!("[{lo}–{hi}]"),
                false => format!("(unknown between {least} and {hi}/s)"),
            };
            let coarse = match outcome {
                SloOutcome::Coarse => "; the next rate with an answer is far above, and rates between them are unknown",
                _ => "",
            };
            let next = next(";", "");
            format!("highest rate with {objective}: {value}/s {known}{coarse}{next}")
        }
    }
}
