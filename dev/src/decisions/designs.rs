//! Designs by which a lab can be measured: the rule of real labs, and elimination by bisection. In: labs whose answer is known. Out:
//! the answer of each design, and its number of steps.

use super::families::{Family, KnownLab, STEP_S};
use super::servers::SLOW_SHARE;
use crate::study::rng;
use tierlab_analysis::decision::lab::Lab;
use tierlab_analysis::decision::{Candidate, Next, Phase, StopReason, Time, next};
use tierlab_analysis::record::{CostTerms, Purpose};

/// Answer of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The best, or a variant within the tie of it; none if none meets the objective.
    Correct,
    /// Another variant.
    Incorrect,
    /// No variant, although one meets the objective.
    FalseNone,
    Undecided,
    /// Fresh steps contradict those that chose.
    Contradicted,
}

impl Answer {
    /// Answer of a lab that named a variant, or none.
    fn from_choice(lab: &KnownLab, variant: Option<usize>) -> Self {
        match variant {
            Some(best) if lab.is_correct(best) => Self::Correct,
            Some(_) => Self::Incorrect,
            None if lab.best_score().is_infinite() => Self::Correct,
            None => Self::FalseNone,
        }
    }
}

/// Draws the lab of a seed.
pub(super) fn draw_lab(family: &Family, seed: u64) -> KnownLab {
    KnownLab::draw(family, &mut rng(seed))
}

/// Creates candidates with these costs.
pub(super) fn candidates(terms: impl IntoIterator<Item = CostTerms>) -> Vec<Candidate> {
    let candidates = terms.into_iter().enumerate().map(|(index, terms)| Candidate {
        variant: format!("v{index}"),
        terms: Some(terms),
        steps: Vec::new(),
    });
    candidates.collect()
}

/// Measures a lab by the rule, up to the confirmed answer; returns it and the number of steps.
pub(super) fn by_rule(family: &Family, seed: u64) -> (Answer, u32) {
    let lab = draw_lab(family, seed);
    let mut rng = rng(seed ^ 0x7275_6c65);
    let mut candidates = candidates(lab.truths.iter().map(|truth| truth.terms.clone()));
    let mut noise = family.noise;
    let (mut steps, mut block) = (0_u32, 0);
    loop {
        let time = Time {
            spent_s: f64::from(steps) * STEP_S,
            step_s: STEP_S,
        };
        match next(&lab.question, &candidates, &time) {
            Next::Block { phase, probes } if phase != Phase::Charts => {
                for probe in probes {
                    let server = lab.truths[probe.candidate].server;
                    let mut step = server.step(probe.rps, probe.purpose, &mut noise, &mut rng);
                    step.block = block;
                    candidates[probe.candidate].steps.push(step);
                    // Steps at the demand may contradict the answer, and are not counted: it is known by then.
                    steps += u32::from(phase != Phase::AtDemand);
                }
                block += 1;
            }
            Next::Block { .. } | Next::Stop(StopReason::Decided) => {
                let best = Lab::new(&lab.question, &candidates).decided();
                return (Answer::from_choice(&lab, best), steps);
            }
            Next::Stop(StopReason::NoneMeets) => return (Answer::from_choice(&lab, None), steps),
            Next::Stop(StopReason::Contradicted) => return (Answer::Contradicted, steps),
            Next::Stop(_) => return (Answer::Undecided, steps),
        }
    }
}

/// Bisects the score, from the best that any variant can have to the worst: every variant left takes one step at the rate that the
/// score between them requires, and those whose step meets the objective stay, or all if none does.
pub(super) fn by_elimination(family: &Family, seed: u64) -> (Answer, u32) {
    let lab = draw_lab(family, seed);
    let mut rng = rng(seed ^ 0x656c_696d);
    let mut noise = family.noise;
    let mut remaining: Vec<usize> = (0..lab.truths.len()).collect();
    let (mut low, mut high) = lab.score_range();
    let (mut steps, mut is_met) = (0, false);
    while (remaining.len() > 1 || !is_met) && high > (1.0 + lab.question.tie) * low {
        let level = (low * high).sqrt();
        let mut passing = remaining.clone();
        passing.retain(|&index| {
            let Some(rps) = lab.required_rps(index, level) else {
                return false;
            };
            let step = loop {
                steps += 1;
                let step = (lab.truths[index].server).step(rps, Purpose::Explore, &mut noise, &mut rng);
                if step.usable.is_ok() {
                    break step;
                }
            };
            step.slow[0] <= SLOW_SHARE * step.requests
        });
        if passing.is_empty() {
            low = level;
        } else {
            (high, remaining, is_met) = (level, passing, true);
        }
    }
    let best = remaining.first().copied().filter(|_| is_met);
    (Answer::from_choice(&lab, best), steps)
}
