//! How likely each candidate is the answer. In: of each how likely each score is. Out: of each the chance that no other is better by
//! more than the tie. Knows nothing of steps.

use super::curve::Curve;
use super::percentile;

/// The confidence with which percentiles differ is found in so many halvings.
const HALVINGS: usize = 12;

/// How likely each score of a candidate is.
#[derive(Debug, Clone)]
pub struct Scores {
    /// By rising highest rate, so that it falls; the first is that of none.
    values: Vec<f64>,
    mass: Vec<f64>,
    /// The chance of a score that is no less than each.
    so_far: Vec<f64>,
}

impl Scores {
    /// One score for each rate of the curve's grid, falling; a candidate that meets the objective at no rate has an infinite one.
    #[must_use]
    pub fn new(by_rate: Vec<f64>, curve: &Curve) -> Self {
        let mut values = vec![f64::INFINITY];
        values.extend(by_rate);
        let mut mass = vec![curve.never];
        mass.extend(&curve.mass);
        let so_far = mass.iter().scan(0.0, |sum, mass| {
            *sum += mass;
            Some(*sum)
        });
        Self {
            so_far: so_far.collect(),
            values,
            mass,
        }
    }

    /// The chance that it is not below another score by more than the tie.
    #[must_use]
    pub fn not_below(&self, score: f64, tie: f64) -> f64 {
        let count = self.values.partition_point(|value| (1.0 + tie) * value >= score);
        count.checked_sub(1).map_or(0.0, |last| self.so_far[last].min(1.0))
    }

    /// The mean of something.
    #[must_use]
    pub fn expect(&self, of: impl Fn(f64) -> f64) -> f64 {
        let (mut sum, mut last) = (0.0, (f64::NAN, 0.0));
        for (value, mass) in self.values.iter().zip(&self.mass).filter(|(_, mass)| **mass > 0.0) {
            if *value != last.0 {
                last = (*value, of(*value));
            }
            sum += mass * last.1;
        }
        sum
    }

    /// The score with the highest rate at an index of the grid; of none without one.
    #[must_use]
    pub fn at(&self, highest: Option<usize>) -> f64 {
        highest.map_or(f64::INFINITY, |index| self.values[index + 1])
    }

    /// The chance that there is one at all.
    #[must_use]
    pub fn is_finite(&self) -> f64 {
        self.expect(|value| f64::from(value.is_finite()))
    }
}

/// The chance that no other candidate is better than one with this score by more than the tie; none at an infinite one.
#[must_use]
pub fn unbeaten(scores: &[&Scores], placed: &[bool], candidate: usize, score: f64, tie: f64) -> f64 {
    if !score.is_finite() {
        return 0.0;
    }
    let others = (0..scores.len()).filter(|&other| other != candidate && placed[other]);
    others.map(|other| scores[other].not_below(score, tie)).product()
}

/// By scores that are likely by themselves.
#[must_use]
pub fn by_score(scores: &[&Scores], placed: &[bool], tie: f64) -> Vec<f64> {
    let chance = |candidate: usize| {
        if placed[candidate] {
            scores[candidate].expect(|score| unbeaten(scores, placed, candidate, score, tie))
        } else {
            0.0
        }
    };
    (0..scores.len()).map(chance).collect()
}

/// By percentiles: the highest confidence with which their intervals lie apart, of those that meet the objective.
#[must_use]
pub fn by_percentile(logs: &[Vec<f64>], scores: &[&Scores], tie: f64) -> Vec<f64> {
    let meets: Vec<f64> = scores.iter().map(|scores| scores.is_finite()).collect();
    let within = (1.0 + tie).ln();
    let apart = |candidate: usize, confidence: f64| {
        let intervals = percentile::intervals(logs, 1.0 - confidence);
        let Some(own) = intervals[candidate] else { return false };
        let others = (0..logs.len()).filter(|&other| other != candidate && meets[other] > 1.0 - confidence);
        others
            .map(|other| intervals[other].map_or(f64::NEG_INFINITY, |interval| interval.lo))
            .all(|lo| own.hi <= lo + within)
    };
    let chance = |candidate: usize| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if apart(candidate, middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        f64::min(low, meets[candidate])
    };
    (0..logs.len()).map(chance).collect()
}
