//! Sentences of the answer. In: the state of all candidates. Out: the reason for a variant's position, and open
//! questions. Knows nothing of runs.

use super::lab::{CandidateStatus, Lab, LabVerdict};
use super::rate_points::usable;
use crate::record::{AnswerOutcome, MeetsObjective, Minimise, OpenQuestion};

/// Returns the reason for a variant's position.
pub(super) fn why(lab: &Lab<'_>, verdict: &LabVerdict, index: usize) -> String {
    let status = &lab.statuses[index];
    if status.outcome == MeetsObjective::NotMet {
        let rps = Some(status.hi).filter(|hi| hi.is_finite()).unwrap_or(lab.rates[0]);
        let rps = three_digits(rps);
        return format!("does not meet the objective at {rps}/s, the lowest rate considered");
    }
    if !lab.is_eligible(index) {
        return "has no price".into();
    }
    let rates = rates_met(status, lab.rates[0]);
    if let Some(rps) = status.missed.filter(|_| status.outcome == MeetsObjective::Unknown) {
        return format!("{rates}; all steps at {}/s together miss it", three_digits(rps));
    }
    let Some(best) = verdict.best else { return rates };
    match comparison(lab, verdict, index, best) {
        Some(comparison) => format!("{comparison}: {rates}"),
        None => rates,
    }
}

/// Rates at which a variant meets the objective, as far as they are certain.
fn rates_met(status: &CandidateStatus, lowest_rps: f64) -> String {
    // A variant that meets the objective does so at the lowest rate, even if its interval is still open there.
    let least = Some(lowest_rps).filter(|_| status.outcome == MeetsObjective::Met);
    let certain = status.lo.max(least.unwrap_or(0.0));
    let (lo, hi) = (three_digits(certain), three_digits(status.hi));
    match (certain > 0.0, status.hi.is_finite()) {
        (true, true) => format!("meets the objective at {lo}/s, not at {hi}/s"),
        (true, false) => format!("meets the objective at {lo}/s"),
        (false, true) => format!("does not meet the objective at {hi}/s"),
        (false, false) if usable(&status.rate_points).next().is_none() => "no usable step".into(),
        (false, false) => "too few steps to be certain of any rate".into(),
    }
}

/// Comparison of a variant with the best; `None` if it may still be better.
fn comparison(lab: &Lab<'_>, verdict: &LabVerdict, index: usize, best: usize) -> Option<String> {
    let name = |index: usize| &lab.candidates[index].variant;
    if best == index {
        let is_decided = verdict.outcome == AnswerOutcome::Decided;
        return Some(match lower_scoring(lab, best).filter(|_| is_decided) {
            Some(other) => format!("within the tie margin of {}, confirmed by fresh steps", name(other)),
            None if is_decided => format!("{} of those that meet the objective", goal(lab.question.minimise)),
            None => "the most likely variant".to_owned(),
        });
    }
    let (best, upper, lower) = (name(best), lab.statuses[best].upper, lab.statuses[index].lower);
    if upper > lab.tie_limit(lower) {
        return None;
    }
    if lower < upper {
        return Some(format!("within the tie margin of {best}, or more"));
    }
    // Two free variants cost the same.
    let more = match lower - upper {
        0.0 => 0.0,
        _ => 100.0 * (lower / upper - 1.0),
    };
    // A few requests a month make no visible difference.
    Some(if more < 0.05 {
        format!("as much as {best}, or more")
    } else if more.is_infinite() {
        format!("more than {best}, which costs nothing")
    } else {
        format!("at least {} % more than {best}", three_digits(more))
    })
}

/// Returns the variant with the lowest score of all that meet the objective, if it is not the best.
fn lower_scoring(lab: &Lab<'_>, best: usize) -> Option<usize> {
    let score = |index: usize| lab.statuses[index].score;
    let is_less = |&index: &usize| lab.statuses[index].outcome == MeetsObjective::Met && score(index) < score(best);
    let others = lab.others(best).filter(is_less);
    others.min_by(|&a, &b| score(a).total_cmp(&score(b)))
}

/// Open question about some variants, with the steps that it needs.
fn question(lab: &Lab<'_>, variants: &[usize], what: String, more_steps: Option<f64>, step_s: f64) -> OpenQuestion {
    let name = |&index: &usize| lab.candidates[index].variant.clone();
    OpenQuestion {
        variants: variants.iter().map(name).collect(),
        what,
        more_s: more_steps.map(|steps| steps * step_s),
    }
}

/// Returns the open questions.
pub(super) fn open_questions(lab: &Lab<'_>, verdict: &LabVerdict, step_s: f64) -> Vec<OpenQuestion> {
    let mut open = match verdict.best {
        Some(best) => about_best(lab, verdict, best, step_s),
        None => without_best(lab, step_s),
    };
    let ineligible = (0..lab.candidates.len()).filter(|&index| !lab.is_eligible(index));
    open.extend(ineligible.map(|index| question(lab, &[index], "it has no price".into(), None, step_s)));
    open
}

/// Variants that meet the objective, none of which is likely to be best; or those whose objective is open.
fn without_best(lab: &Lab<'_>, step_s: f64) -> Vec<OpenQuestion> {
    let all = || 0..lab.candidates.len();
    let with = |outcome| all().filter(move |&index| lab.statuses[index].outcome == outcome);
    let met: Vec<usize> = with(MeetsObjective::Met).collect();
    if !met.is_empty() {
        let which = format!("which of them is the {}", goal(lab.question.minimise));
        return vec![question(lab, &met, which, None, step_s)];
    }
    let mut unknown: Vec<usize> = with(MeetsObjective::Unknown).collect();
    if unknown.is_empty() {
        // Each is unlikely to meet it, but that none does is not likely enough.
        let share = (1.0 - lab.threshold()) / lab.candidates.len().max(1) as f64;
        unknown = all().filter(|&index| meets_probability(lab, index) > share).collect();
    }
    let open_question = |index: usize| {
        let more = steps_needed(1.0 - meets_probability(lab, index), lab.threshold(), steps(lab, index));
        question(lab, &[index], MEETS_OBJECTIVE.into(), more, step_s)
    };
    unknown.into_iter().map(open_question).collect()
}

/// Question whether a variant meets the objective.
const MEETS_OBJECTIVE: &str = "whether it meets the objective";

/// Questions about the best or likeliest variant.
fn about_best(lab: &Lab<'_>, verdict: &LabVerdict, best: usize, step_s: f64) -> Vec<OpenQuestion> {
    let mut open: Vec<OpenQuestion> = Vec::new();
    let mut add = |variants: &[usize], what: String, more: Option<f64>| {
        open.push(question(lab, variants, what, more, step_s));
    };
    let goal = goal(lab.question.minimise);
    if verdict.contradicted {
        let what = "the steps that chose it meet the objective, fresh steps miss it";
        add(&[best], what.into(), None);
    } else if verdict.missing > 0 {
        let what = "fresh steps have not confirmed it yet";
        add(&[best], what.into(), Some(f64::from(verdict.missing)));
    }
    if let Some(rps) = lab.contradiction(best) {
        let rps = three_digits(rps);
        let what =
            format!("it is best only if it meets the objective at {rps}/s, but all steps there together miss it");
        add(&[best], what, None);
    } else if lab.statuses[best].outcome != MeetsObjective::Met {
        let more = steps_needed(meets_probability(lab, best), lab.threshold(), steps(lab, best));
        add(&[best], MEETS_OBJECTIVE.into(), more);
    }
    let is_likely = lab.p_best[best] >= lab.threshold();
    if let Some(rps) = lab.unmeasured_above(best).filter(|_| is_likely) {
        let rps = three_digits(rps);
        let what = format!("it is the {goal} only if it meets the objective above {rps}/s, the highest rate measured");
        add(&[best], what, None);
    } else {
        for rival in lab.rivals(best) {
            let of_both = steps(lab, best) + steps(lab, rival);
            let more = steps_needed(1.0 - lab.beats(rival, best), lab.threshold(), of_both);
            add(&[best, rival], format!("which of them is the {goal}"), more);
        }
    }
    open
}

fn meets_probability(lab: &Lab<'_>, index: usize) -> f64 {
    lab.statuses[index].curve.at_least(&lab.grid, lab.rates[0])
}

fn steps(lab: &Lab<'_>, index: usize) -> f64 {
    lab.candidates[index].steps.len() as f64
}

/// Estimates the steps until an event is likely enough, from the growth of its odds since even; `None` if they have not
/// grown.
fn steps_needed(probability: f64, required: f64, steps: f64) -> Option<f64> {
    let odds = |probability: f64| (probability / (1.0 - probability).max(1e-12)).ln();
    let (grown, needed) = (odds(probability), odds(required));
    (grown > 0.0).then(|| ((needed - grown) / grown * steps).max(1.0).ceil())
}

fn goal(minimise: Minimise) -> &'static str {
    match minimise {
        Minimise::UsdPerMonth => "cheapest per month",
        Minimise::UsdPer10k => "cheapest per inference",
        Minimise::P99 => "fastest",
        Minimise::Instances => "one with the fewest instances",
    }
}

/// Formats with three digits.
fn three_digits(value: f64) -> String {
    if value >= 100.0 || value == 0.0 {
        return format!("{value:.0}");
    }
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
