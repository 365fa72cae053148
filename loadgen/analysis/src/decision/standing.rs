//! What all candidates say together: how each stands, who is best, and whether that is certain.
//!
//! In: a question and candidates. Out: of each the interval of what should be least. Knows nothing of what is measured next.

use super::bounds::{Bounds, Certain, Gathered, gather};
use super::evidence::{Candidate, StepEvidence};
use super::percentile;
use super::rates::rates;
use super::score::{Priced, is_priced, score};
use super::sequence::Weather;
use crate::costs::monthly::Use;
use crate::record::{Interval, MeetsObjective, Minimise, Purpose, Question};

/// Just below: a rate that is not met is none that serves.
const BELOW: f64 = 1.0 - 1e-6;

/// How a candidate stands. Scores are what should be least.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// How far it goes.
    pub bounds: Bounds,
    /// What its inferences ask of the tier; absent where the server did not say.
    pub use_per_inference: Option<Use>,
    /// It certainly has no less.
    pub lower: f64,
    /// It certainly has no more; infinite where it is not known to meet the objective.
    pub upper: f64,
    /// It seems to have.
    pub estimate: f64,
    /// Whether it meets the objective.
    pub outcome: MeetsObjective,
    /// The logarithm of its percentile, where that is what should be least.
    pub percentile: Option<Interval>,
}

/// A question with how all candidates stand.
#[derive(Debug, Clone)]
pub struct Lab<'a> {
    /// The question.
    pub question: &'a Question,
    /// Who could be the answer.
    pub candidates: &'a [Candidate],
    /// In the same order.
    pub standings: Vec<Standing>,
    /// The rates at which the answer can change, rising; at least one.
    pub rates: Vec<f64>,
    /// What is certain.
    pub certain: Certain,
    /// The weather that all steps show.
    weather: Weather,
}

/// What chooses: everything but what confirms.
fn chooses(purpose: Purpose) -> bool {
    purpose != Purpose::Confirm
}

fn confirms(purpose: Purpose) -> bool {
    purpose == Purpose::Confirm
}

impl<'a> Lab<'a> {
    /// With the question's confidence.
    #[must_use]
    pub fn new(question: &'a Question, candidates: &'a [Candidate]) -> Self {
        Self::with_confidence(question, candidates, question.confidence)
    }

    /// With another confidence.
    #[must_use]
    pub fn with_confidence(question: &'a Question, candidates: &'a [Candidate], confidence: f64) -> Self {
        let rates = rates(question);
        let all: Vec<Vec<Gathered>> = candidates
            .iter()
            .map(|candidate| gather(question, &candidate.steps, &rates, chooses))
            .collect();
        let mut weather = Weather::default();
        for gathered in all.iter().flatten() {
            gathered.tell(&mut weather);
        }
        let tests = question.objectives.len() + 1;
        let certain = Certain::of(confidence, candidates.len(), rates.len(), tests);
        let logs: Vec<Vec<f64>> = candidates
            .iter()
            .map(|candidate| log_percentiles(candidate, rates[0]))
            .collect();
        let percentiles = percentile::intervals(&logs, 0.5 * (1.0 - confidence));
        let mut lab = Self {
            question,
            candidates,
            standings: Vec::new(),
            rates,
            certain,
            weather,
        };
        for ((candidate, gathered), percentile) in candidates.iter().zip(&all).zip(percentiles) {
            let bounds = Bounds::of(gathered, &weather, question, certain);
            lab.standings.push(lab.standing(candidate, bounds, percentile));
        }
        lab
    }

    fn standing(&self, candidate: &Candidate, bounds: Bounds, percentile: Option<Interval>) -> Standing {
        let use_per_inference = use_per_inference(&candidate.steps);
        let lowest = self.rates[0];
        let outcome = if bounds.hi <= lowest * (2.0 - BELOW) {
            MeetsObjective::NotMet
        } else if bounds.lo >= lowest * BELOW {
            MeetsObjective::Met
        } else {
            MeetsObjective::Unknown
        };
        let mut standing = Standing {
            use_per_inference,
            lower: f64::INFINITY,
            upper: f64::INFINITY,
            estimate: f64::INFINITY,
            outcome,
            percentile: None,
            bounds,
        };
        if outcome == MeetsObjective::NotMet {
            return standing;
        }
        if self.question.minimise == Minimise::P99 {
            let looks_met = standing.bounds.places.iter().all(super::bounds::Place::looks_met);
            standing.lower = percentile.map_or(0.0, |interval| interval.lo.exp());
            if outcome == MeetsObjective::Met {
                standing.upper = percentile.map_or(f64::INFINITY, |interval| interval.hi.exp());
            }
            if let Some(interval) = percentile.filter(|_| looks_met) {
                standing.estimate = interval.value.exp();
            }
            standing.percentile = percentile;
            return standing;
        }
        let priced = Priced {
            terms: candidate.terms.as_ref(),
            use_per_inference,
        };
        let at = |rps: f64, best_case: bool| score(self.question, priced, rps, best_case);
        standing.lower = at(standing.bounds.hi * BELOW, true);
        standing.upper = at(standing.bounds.lo, false);
        standing.estimate = match standing.bounds.estimate {
            // Below the lowest rate that serves the demand none does.
            Some(rps) if rps >= lowest * BELOW => at(rps, false),
            Some(_) => f64::INFINITY,
            None => standing.lower,
        };
        standing
    }

    /// The score of a candidate at a rate.
    #[must_use]
    pub fn score(&self, candidate: usize, rps: f64) -> f64 {
        let priced = Priced {
            terms: self.candidates[candidate].terms.as_ref(),
            use_per_inference: self.standings[candidate].use_per_inference,
        };
        score(self.question, priced, rps, false)
    }

    /// Whether a candidate could be the answer: where prices decide, one without any cannot be placed.
    #[must_use]
    pub fn is_placed(&self, candidate: usize) -> bool {
        !is_priced(self.question) || self.candidates[candidate].terms.is_some()
    }

    /// Within the tie: as good as each other.
    #[must_use]
    pub fn tied(&self, score: f64) -> f64 {
        (1.0 + self.question.tie) * score
    }

    /// The one whose upper bound is least, by estimate where several are.
    #[must_use]
    pub fn best(&self) -> Option<usize> {
        (0..self.standings.len())
            .filter(|&index| self.standings[index].upper.is_finite())
            .min_by(|&a, &b| {
                let (a, b) = (&self.standings[a], &self.standings[b]);
                a.upper.total_cmp(&b.upper).then(a.estimate.total_cmp(&b.estimate))
            })
    }

    /// The likely one.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.standings.len())
            .filter(|&index| self.standings[index].estimate.is_finite())
            .min_by(|&a, &b| {
                let (a, b) = (&self.standings[a], &self.standings[b]);
                a.estimate.total_cmp(&b.estimate).then(a.upper.total_cmp(&b.upper))
            })
    }

    /// Candidates that may still be better than this one by more than the tie, or that may be where it is not known to meet
    /// the objective.
    #[must_use]
    pub fn rivals(&self, best: usize) -> Vec<usize> {
        let upper = self.standings[best].upper;
        (0..self.standings.len())
            .filter(|&index| index != best && self.is_placed(index))
            .filter(|&index| self.standings[index].outcome != MeetsObjective::NotMet)
            .filter(|&index| upper > self.tied(self.standings[index].lower))
            .collect()
    }

    /// The answer, where it is certain.
    #[must_use]
    pub fn decided(&self) -> Option<usize> {
        self.best().filter(|&best| self.rivals(best).is_empty())
    }

    /// Whether no candidate meets the objective.
    #[must_use]
    pub fn none_meets(&self) -> bool {
        let outcomes = self.standings.iter().map(|standing| standing.outcome);
        !self.standings.is_empty() && outcomes.into_iter().all(|outcome| outcome == MeetsObjective::NotMet)
    }

    /// The lowest rate at which the winner still is one: what fresh steps have to confirm.
    #[must_use]
    pub fn decisive_rps(&self, best: usize) -> f64 {
        let others = (0..self.standings.len()).filter(|&index| index != best && self.is_placed(index));
        let least = others
            .map(|index| self.standings[index].lower)
            .fold(f64::INFINITY, f64::min);
        let lo = self.standings[best].bounds.lo;
        let serves = |rps: &&f64| **rps <= lo * (2.0 - BELOW) && self.score(best, **rps) <= self.tied(least);
        if self.question.minimise == Minimise::P99 {
            return self.rates[0];
        }
        self.rates.iter().find(serves).copied().unwrap_or(lo)
    }

    /// What the fresh steps of the winner say: how many there are, and whether they contradict what was chosen.
    #[must_use]
    pub fn confirmation(&self, best: usize, rps: f64) -> (u32, u32, bool) {
        let gathered = gather(self.question, &self.candidates[best].steps, &self.rates, confirms);
        let (mut usable, mut in_vain, mut contradicted) = (0, 0, false);
        let certain = (1.0 / (1.0 - self.question.confidence).max(1e-12)).ln();
        // What does not hold at a lower rate does not at this one.
        for one in gathered.iter().filter(|one| one.rps <= rps * 1.01) {
            let evidence = one.evidence(&self.weather, self.question.error_share);
            contradicted |= evidence.not_met >= certain;
            if (one.rps / rps - 1.0).abs() <= 0.01 {
                let (more, vain) = one.steps(&self.weather, self.question.error_share);
                (usable, in_vain) = (usable + more, in_vain.max(vain));
            }
        }
        (usable, in_vain, contradicted)
    }
}

/// The logarithms of the first objective's percentile at a rate.
fn log_percentiles(candidate: &Candidate, rps: f64) -> Vec<f64> {
    let steps = candidate.steps.iter();
    steps
        .filter(|step| chooses(step.purpose) && step.usable.is_ok() && (step.rps / rps - 1.0).abs() <= 0.01)
        .filter_map(|step| step.quantile_us.first().filter(|us| **us > 0.0))
        .map(|us| us.ln())
        .collect()
}

/// The mean over the steps that tell it, each by its requests.
fn use_per_inference(steps: &[StepEvidence]) -> Option<Use> {
    let (mut weight, mut used) = (0.0, Use::default());
    for step in steps.iter().filter(|step| step.usable.is_ok()) {
        if let (Some(requests), Some(bytes)) = (step.tier_requests_per_inference, step.tier_bytes_per_inference) {
            weight += step.requests;
            used.requests += step.requests * requests;
            used.bytes += step.requests * bytes;
        }
    }
    (weight > 0.0).then(|| Use {
        requests: used.requests / weight,
        bytes: used.bytes / weight,
    })
}
