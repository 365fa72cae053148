//! Steps of one candidate by rate. In: steps. Out: for each rate the likelihood under every objective, and whether the
//! rate can be measured. Knows nothing of other rates, of costs and of decisions.

use super::evidence::StepEvidence;
use super::likelihood::{Counts, Likelihood};
use crate::record::{Purpose, Question};

/// Share within which two rates are the same, because a schedule may round.
pub(super) const SAME: f64 = 0.002;
/// Failed attempts in a row after which a rate is given up.
pub const TRIES: u32 = 3;
/// Failed requests below which any limit may be kept by coincidence.
const FAILED: f64 = 2.0;
/// Lower end of the rates that are pooled for the dependence at a rate, as a share of it.
const DEPENDENCE_FROM: f64 = 0.65;
/// Upper end of the rates that are pooled for the dependence at a rate, as a share of it.
const DEPENDENCE_TO: f64 = 1.1;

/// Steps of one rate.
#[derive(Debug, Clone)]
pub struct Place {
    /// Offered rate in requests per second.
    pub rps: f64,
    /// Steps that are evidence.
    pub usable: u32,
    /// Unusable steps since the last usable one.
    pub in_vain: u32,
    /// Likelihood under each objective, then of failures.
    pub likelihoods: Vec<Likelihood>,
    /// Requests per independent observation.
    pub dependence: f64,
    /// Log odds of the mean slow share relative to the limit, for the objective that looks worst.
    pub position: f64,
    requests: f64,
    failed: f64,
}

impl Place {
    fn new(rps: f64, objectives: usize, dependence: f64) -> Self {
        Self {
            rps,
            usable: 0,
            in_vain: 0,
            likelihoods: vec![Likelihood::none(); objectives + 1],
            dependence,
            position: 0.0,
            requests: 0.0,
            failed: 0.0,
        }
    }

    /// True if the rate looks as if it met the objectives.
    #[must_use]
    pub fn looks_met(&self) -> bool {
        self.usable > 0 && self.position < 0.0
    }

    /// True if the rate could not be measured.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.in_vain >= TRIES
    }

    /// True if more requests failed than allowed. Short steps cannot show a share below one in a thousand, so such
    /// limits only have to look met.
    #[must_use]
    pub fn refuses(&self, question: &Question) -> bool {
        self.failed >= FAILED && self.failed > question.error_share * self.requests
    }

    fn add(&mut self, question: &Question, step: &StepEvidence) {
        if says_nothing(step) {
            self.in_vain += 1;
            return;
        }
        let dependence = self.dependence;
        let counts = |slow: f64, saturated: bool| Counts {
            requests: step.requests,
            slow,
            dependence,
            saturated,
        };
        let limits = question.objectives.iter().map(|objective| objective.slow_share());
        for ((likelihood, limit), slow) in self.likelihoods.iter_mut().zip(limits).zip(&step.slow) {
            likelihood.add(counts(*slow, step.saturated), limit);
        }
        if let Some(failures) = self.likelihoods.last_mut() {
            failures.add(counts(step.failed, false), question.error_share.clamp(1e-6, 0.5));
        }
        self.in_vain = 0;
        self.usable += 1;
        self.requests += step.requests;
        self.failed += step.failed;
    }

    fn settle(&mut self, question: &Question) {
        let objectives = question.objectives.len();
        let counted = if self.refuses(question) {
            objectives + 1
        } else {
            objectives
        };
        let positions = self.likelihoods[..counted].iter().map(Likelihood::position);
        self.position = positions.fold(f64::NEG_INFINITY, f64::max);
    }
}

fn says_nothing(step: &StepEvidence) -> bool {
    step.requests <= 0.0 || step.usable.is_err()
}

/// Gathers the steps of one candidate with the given purposes by rate, rising.
#[must_use]
pub fn gather(question: &Question, steps: &[StepEvidence], rates: &[f64], of: fn(Purpose) -> bool) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let depends = |rps: f64| {
        let told = |step: &&StepEvidence| {
            let is_self = (step.rps / rps - 1.0).abs() <= SAME;
            let is_near = step.rps >= DEPENDENCE_FROM * rps && step.rps <= DEPENDENCE_TO * rps && !step.saturated;
            (is_self || is_near) && !says_nothing(step)
        };
        let (sum, count) = steps.iter().filter(told).fold((0.0, 0.0), |(sum, count), step| {
            (sum + step.dependence.max(1.0), count + 1.0)
        });
        if count > 0.0 { sum / count } else { 1.0 }
    };
    for step in steps.iter().filter(|step| of(step.purpose)) {
        let near = |rate: f64| (step.rps / rate - 1.0).abs() <= SAME;
        let rps = rates.iter().copied().find(|rate| near(*rate)).unwrap_or(step.rps);
        let index = places.iter().position(|one| (one.rps / rps - 1.0).abs() <= SAME);
        let index = index.unwrap_or_else(|| {
            places.push(Place::new(rps, question.objectives.len(), depends(rps)));
            places.len() - 1
        });
        places[index].add(question, step);
    }
    for place in &mut places {
        place.settle(question);
    }
    places.sort_by(|a, b| a.rps.total_cmp(&b.rps));
    places
}

/// Returns the steps of a rate, if it was measured.
#[must_use]
pub fn at(places: &[Place], rps: f64) -> Option<&Place> {
    places.iter().find(|place| (place.rps / rps - 1.0).abs() <= SAME)
}
