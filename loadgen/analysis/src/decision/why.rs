//! Sentences of the answer. In: the state of all candidates. Out: the reason for a variant's position, and open
//! questions. Knows nothing of runs.

use super::standing::Lab;
use super::verdict::Verdict;
use crate::record::{AnswerOutcome, MeetsObjective, Minimise, OpenQuestion};

/// Returns the reason for a variant's position.
#[must_use]
pub(super) fn why(lab: &Lab<'_>, verdict: &Verdict, index: usize) -> String {
    let standing = &lab.standings[index];
    if standing.outcome == MeetsObjective::NotMet {
        let rps = if standing.hi.is_finite() {
            standing.hi
        } else {
            lab.rates[0]
        };
        return format!(
            "does not meet the objective at {}/s, the lowest rate that would serve",
            number(rps)
        );
    }
    if !lab.is_placed(index) {
        return "has no price".into();
    }
    let kept = match (standing.lo > 0.0, standing.hi.is_finite()) {
        (true, true) => format!(
            "meets the objective at {}/s, not at {}/s",
            number(standing.lo),
            number(standing.hi)
        ),
        (true, false) => format!("meets the objective at {}/s", number(standing.lo)),
        (false, true) => format!("does not meet the objective at {}/s", number(standing.hi)),
        (false, false) if standing.places.iter().all(|place| place.usable == 0) => "no step of it could be used".into(),
        (false, false) => "too few steps to be certain of any rate".into(),
    };
    if let Some(rps) = standing.missed.filter(|_| standing.outcome == MeetsObjective::Unknown) {
        return format!("{kept}; all steps at {}/s together miss it", number(rps));
    }
    match verdict.best {
        Some(best) if best == index && verdict.outcome == AnswerOutcome::Decided => {
            let least = least(lab.question.minimise);
            match less(lab, best) {
                None => format!("{least} of those that meet the objective: {kept}"),
                Some(other) => format!(
                    "within the tie of {}, and confirmed by fresh steps: {kept}",
                    lab.candidates[other].variant
                ),
            }
        }
        Some(best) if best == index => format!("the most likely one: {kept}"),
        Some(best) => {
            let upper = lab.standings[best].upper;
            let name = &lab.candidates[best].variant;
            if upper > lab.tied(standing.lower) {
                return kept;
            }
            if standing.lower >= upper {
                // Two free variants cost the same.
                let more = match standing.lower - upper {
                    0.0 => 0.0,
                    _ => 100.0 * (standing.lower / upper - 1.0),
                };
                // A few requests a month make no visible difference.
                if more < 0.05 {
                    format!("as much as {name}, or more: {kept}")
                } else if more.is_infinite() {
                    format!("more than {name}, which costs nothing: {kept}")
                } else {
                    format!("at least {} % more than {name}: {kept}", number(more))
                }
            } else {
                format!("within the tie of {name}, or more: {kept}")
            }
        }
        None => kept,
    }
}

/// Returns the variant with the lowest score of all that meet the objective, if it is not the best.
fn less(lab: &Lab<'_>, best: usize) -> Option<usize> {
    let score = |index: usize| lab.standings[index].score;
    let others = (0..lab.standings.len()).filter(|&index| lab.is_placed(index));
    others
        .filter(|&index| lab.standings[index].outcome == MeetsObjective::Met && score(index) < score(best))
        .min_by(|&a, &b| score(a).total_cmp(&score(b)))
}

/// Returns the open questions.
#[must_use]
pub(super) fn open(lab: &Lab<'_>, verdict: &Verdict, step_s: f64) -> Vec<OpenQuestion> {
    let name = |index: usize| lab.candidates[index].variant.clone();
    let unplaced = (0..lab.candidates.len())
        .filter(|&index| !lab.is_placed(index))
        .map(|index| OpenQuestion {
            variants: vec![name(index)],
            what: "it has no price".into(),
            more_s: None,
        });
    let Some(best) = verdict.best else {
        let is_unknown = |index: &usize| lab.standings[*index].outcome == MeetsObjective::Unknown;
        let mut unknown: Vec<usize> = (0..lab.candidates.len()).filter(is_unknown).collect();
        let is_met = |index: &usize| lab.standings[*index].outcome == MeetsObjective::Met;
        let met: Vec<usize> = (0..lab.candidates.len()).filter(is_met).collect();
        if !met.is_empty() {
            let which = OpenQuestion {
                variants: met.into_iter().map(name).collect(),
                what: format!("which of them is the {}", least(lab.question.minimise)),
                more_s: None,
            };
            return std::iter::once(which).chain(unplaced).collect();
        }
        if unknown.is_empty() {
            // Each is unlikely to meet it, but that none does is not likely enough.
            let share = (1.0 - lab.enough()) / lab.candidates.len().max(1) as f64;
            unknown = (0..lab.candidates.len())
                .filter(|&index| meets(lab, index) > share)
                .collect();
        }
        return unknown
            .into_iter()
            .map(|index| OpenQuestion {
                variants: vec![name(index)],
                what: "whether it meets the objective".into(),
                more_s: further(1.0 - meets(lab, index), lab.enough(), steps(lab, index)).map(|steps| steps * step_s),
            })
            .chain(unplaced)
            .collect();
    };
    let mut open: Vec<OpenQuestion> = Vec::new();
    if verdict.contradicted {
        open.push(OpenQuestion {
            variants: vec![name(best)],
            what: "the steps that chose it say that it meets the objective, fresh ones that it does not".into(),
            more_s: None,
        });
    }
    if verdict.missing > 0 && !verdict.contradicted {
        open.push(OpenQuestion {
            variants: vec![name(best)],
            what: "the steps that chose it are enough, but fresh ones have not confirmed it".into(),
            more_s: Some(f64::from(verdict.missing) * step_s),
        });
    }
    if let Some(rps) = lab.contradiction(best) {
        open.push(OpenQuestion {
            variants: vec![name(best)],
            what: format!(
                "single steps say that it meets the objective at {}/s, all of them together that it does not",
                number(rps)
            ),
            more_s: None,
        });
    } else if lab.standings[best].outcome != MeetsObjective::Met {
        open.push(OpenQuestion {
            variants: vec![name(best)],
            what: "whether it meets the objective".into(),
            more_s: further(meets(lab, best), lab.enough(), steps(lab, best)).map(|steps| steps * step_s),
        });
    }
    let is_likely = lab.chances[best] >= lab.enough();
    if let Some(rps) = lab.unmeasured_above(best).filter(|_| is_likely) {
        open.push(OpenQuestion {
            variants: vec![name(best)],
            what: format!(
                "it is the {} only if it meets the objective above {}/s, the highest rate measured",
                least(lab.question.minimise),
                number(rps)
            ),
            more_s: None,
        });
    } else {
        for rival in lab.rivals(best) {
            let of_both = steps(lab, best) + steps(lab, rival);
            let more = further(1.0 - lab.beats(rival, best), lab.enough(), of_both);
            open.push(OpenQuestion {
                variants: vec![name(best), name(rival)],
                what: format!("which of them is the {}", least(lab.question.minimise)),
                more_s: more.map(|steps| steps * step_s),
            });
        }
    }
    open.extend(unplaced);
    open
}

fn meets(lab: &Lab<'_>, index: usize) -> f64 {
    lab.standings[index].curve.at_least(&lab.grid, lab.rates[0])
}

fn steps(lab: &Lab<'_>, index: usize) -> f64 {
    lab.candidates[index].steps.len() as f64
}

/// Estimates the steps until an event is likely enough, from the growth of its odds since even; `None` if they have not
/// grown.
fn further(chance: f64, enough: f64, steps: f64) -> Option<f64> {
    let odds = |chance: f64| (chance / (1.0 - chance).max(1e-12)).ln();
    let (grown, needed) = (odds(chance), odds(enough));
    (grown > 0.0).then(|| ((needed - grown) / grown * steps).max(1.0).ceil())
}

fn least(minimise: Minimise) -> &'static str {
    match minimise {
        Minimise::UsdPerMonth => "cheapest by the month",
        Minimise::UsdPer10k => "cheapest for an inference",
        Minimise::P99 => "fastest",
        Minimise::Instances => "one with the fewest instances",
    }
}

/// Formats with three digits.
fn number(value: f64) -> String {
    if value >= 100.0 || value == 0.0 {
        return format!("{value:.0}");
    }
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
