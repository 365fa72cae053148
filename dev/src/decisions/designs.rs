//! Designs by which a lab can be measured: the rule of real labs, and elimination by bisection. In: labs whose answer is known. Out:
//! the answer of each design, and its number of steps.

use super::families::{Family, Known, STEP_S};
use super::servers::SLOW;
use crate::study::rng;
use tierlab_analysis::decision::lab::Lab;
use tierlab_analysis::decision::{Candidate, Next, Phase, StopReason, Time, next};
use tierlab_analysis::record::{CostTerms, Purpose};

/// Answer of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The best, or a variant within the tie of it; none if none meets the objective.
    Right,
    /// Another variant.
    Wrong,
    /// No variant, although one meets the objective.
    NoneWrong,
    Undecided,
    /// Fresh steps contradict those that chose.
    Contradicted,
}

impl Answer {
    /// Answer of a lab that named a variant, or none.
    fn named(known: &Known, variant: Option<usize>) -> Self {
        match variant {
            Some(best) if known.is_right(best) => Self::Right,
            Some(_) => Self::Wrong,
            None if known.least().is_infinite() => Self::Right,
            None => Self::NoneWrong,
        }
    }
}

/// Draws the lab of a seed.
pub(super) fn known(family: &Family, seed: u64) -> Known {
    Known::draw(family, &mut rng(seed))
}

/// Creates candidates with these costs.
pub(super) fn candidates(terms: impl IntoIterator<Item = CostTerms>) -> Vec<Candidate> {
    let named = terms.into_iter().enumerate().map(|(index, terms)| Candidate {
        variant: format!("v{index}"),
        terms: Some(terms),
        steps: Vec::new(),
    });
    named.collect()
}

/// Measures a lab by the rule, up to the confirmed answer; returns it and the number of steps.
pub(super) fn by_rule(family: &Family, seed: u64) -> (Answer, u32) {
    let known = known(family, seed);
    let mut rng = rng(seed ^ 0x7275_6c65);
    let mut candidates = candidates(known.truths.iter().map(|truth| truth.terms.clone()));
    let mut weather = family.weather;
    let (mut steps, mut block) = (0_u32, 0);
    loop {
        let time = Time {
            spent_s: f64::from(steps) * STEP_S,
            step_s: STEP_S,
        };
        match next(&known.question, &candidates, &time) {
            Next::Block { phase, probes } if phase != Phase::Charts => {
                for probe in probes {
                    let server = known.truths[probe.candidate].server;
                    let mut step = server.step(probe.rps, probe.purpose, &mut weather, &mut rng);
                    step.block = block;
                    candidates[probe.candidate].steps.push(step);
                    // Steps at the demand may contradict the answer, and are not counted: it is known by then.
                    steps += u32::from(phase != Phase::AtDemand);
                }
                block += 1;
            }
            Next::Block { .. } | Next::Stop(StopReason::Decided) => {
                let best = Lab::new(&known.question, &candidates).decided();
                return (Answer::named(&known, best), steps);
            }
            Next::Stop(StopReason::NoneMeets) => return (Answer::named(&known, None), steps),
            Next::Stop(StopReason::Contradicted) => return (Answer::Contradicted, steps),
            Next::Stop(_) => return (Answer::Undecided, steps),
        }
    }
}

/// Bisects the score, from the best that any variant can have to the worst: every variant left takes one step at the rate that the
/// score between them requires, and those whose step meets the objective stay, or all if none does.
pub(super) fn by_elimination(family: &Family, seed: u64) -> (Answer, u32) {
    let known = known(family, seed);
    let mut rng = rng(seed ^ 0x656c_696d);
    let mut weather = family.weather;
    let mut left: Vec<usize> = (0..known.truths.len()).collect();
    let (mut low, mut high) = known.range();
    let (mut steps, mut is_met) = (0, false);
    while (left.len() > 1 || !is_met) && high > (1.0 + known.question.tie) * low {
        let level = (low * high).sqrt();
        let mut met = left.clone();
        met.retain(|&index| {
            let Some(rps) = known.needed(index, level) else {
                return false;
            };
            let step = loop {
                steps += 1;
                let step = (known.truths[index].server).step(rps, Purpose::Explore, &mut weather, &mut rng);
                if step.usable.is_ok() {
                    break step;
                }
            };
            step.slow[0] <= SLOW * step.requests
        });
        if met.is_empty() {
            low = level;
        } else {
            (high, left, is_met) = (level, met, true);
        }
    }
    let best = left.first().copied().filter(|_| is_met);
    (Answer::named(&known, best), steps)
}
