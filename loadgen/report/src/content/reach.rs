//! How far a curve goes under the run's objective, in words.
//!
//! In: a run and its findings. Out: a sentence per curve. Knows nothing of markup.

use super::words::{cache, tier};
use crate::units::rate;
use tierlab_analysis::curves::{Curve, same_but_rate};
use tierlab_analysis::record::{Finding, Run, SloFinding, SloOutcome};

/// What the interval of a highest rate is.
pub(crate) const REACH: &str = "Highest rate under the objective: [lo–hi] reaches from the highest rate that certainly meets it to \
                                the lowest that certainly does not.";

/// The sentences of [`reach`] that belong to the curves of a group.
pub(crate) fn reaches(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let mine = |finding: &&Finding| {
        curves
            .iter()
            .any(|curve| same_but_rate(curve.factors(), &finding.factors))
    };
    run.findings
        .iter()
        .filter(mine)
        .filter_map(|finding| reach(run, finding))
        .collect()
}

/// How far a curve goes under the run's objective, in one sentence; `None` without an objective.
pub(crate) fn reach(run: &Run, finding: &Finding) -> Option<String> {
    let slo = run.slo.as_ref()?;
    let objective = slo.objective.to_string();
    let factors = &finding.factors;
    let mut text = format!("{} {} {}", tier(run, factors.label()), cache(factors), factors.mode);
    if factors.batch_size > 1 {
        text += &format!(" ×{}", factors.batch_size);
    }
    let Some(found) = &finding.slo else {
        return Some(format!(
            "{text}: no rate could be judged by {objective}: too few samples"
        ));
    };
    let not_met = |found: &SloFinding| {
        found
            .not_met
            .as_ref()
            .map_or_else(String::new, |next| format!("at {}/s {}", rate(next.rps), next.why))
    };
    text += &match (found.outcome, &found.highest_rps) {
        (SloOutcome::Unknown, _) => {
            let above = found
                .not_met
                .as_ref()
                .map_or_else(String::new, |_| format!("; {}", not_met(found)));
            format!(": not known whether any rate has {objective}{above}")
        }
        (SloOutcome::NeverMet, _) | (_, None) => {
            let why = found.not_met.as_ref().map_or_else(String::new, |next| {
                let asked = if next.rps <= slo.lowest_rps {
                    ", the lowest rate asked,"
                } else {
                    ""
                };
                format!(": at {}/s{asked} {}", rate(next.rps), next.why)
            });
            format!(": no rate with {objective}{why}")
        }
        (outcome, Some(highest)) => {
            let [value, lo, hi] = [highest.value, highest.lo, highest.hi].map(rate);
            let known = if highest.lo > 0.0 && highest.hi < slo.highest_rps {
                format!("[{lo}–{hi}]")
            } else {
                format!(
                    "(not known between {} and {hi}/s)",
                    rate(highest.lo.max(slo.lowest_rps))
                )
            };
            let at = format!(": highest rate with {objective}: {value}/s {known}");
            match outcome {
                SloOutcome::MetAtHighest => format!(
                    ": {objective} still holds at {value}/s, the highest rate asked; what the server can do lies above \
                     (raise `search.max_rate`)"
                ),
                SloOutcome::MetAsFarAsMeasured => {
                    format!(": {objective} still holds at {value}/s, the highest rate measured")
                }
                SloOutcome::Coarse => format!(
                    "{at}; the next rate that has an answer is far above, and between them nothing is known: {}",
                    not_met(found)
                ),
                _ => format!("{at}; {}", not_met(found)),
            }
        }
    };
    if let Some(first) = found.unknown.first() {
        let rates: Vec<String> = found.unknown.iter().map(|one| format!("{}/s", rate(one.rps))).collect();
        text += &format!(
            "; nothing is known of the server at {} ({})",
            rates.join(", "),
            first.why
        );
    }
    if !found.contradicting_rps.is_empty() {
        let rates: Vec<String> = found
            .contradicting_rps
            .iter()
            .map(|&rps| format!("{}/s", rate(rps)))
            .collect();
        text += &format!("; measured otherwise at {}", rates.join(", "));
    }
    if let Some(knee) = finding.knee_rps {
        text += &format!("; p95 turns up at {}/s", rate(knee));
    }
    Some(text)
}
