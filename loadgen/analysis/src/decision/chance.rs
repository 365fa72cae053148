//! Probability of each candidate being the answer. In: each candidate's score distribution. Out: the probability that
//! no other candidate is better by more than the tie margin. Knows nothing of steps.

use super::curve::Curve;
use super::percentile;

/// Halvings in the search for the confidence at which percentiles differ.
const HALVINGS: usize = 12;

/// Score distribution of a candidate.
#[derive(Debug, Clone)]
pub struct Scores {
    /// Scores in falling order, by rising highest rate; the first belongs to no rate at all.
    values: Vec<f64>,
    mass: Vec<f64>,
    /// Cumulative probability: that the score is no less than each value.
    so_far: Vec<f64>,
}

impl Scores {
    /// Creates the distribution from the score at each rate of the curve's grid, falling. Meeting the objective at no
    /// rate scores infinity.
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

    /// Returns the probability that this score is not below `score` by more than the tie margin.
    #[must_use]
    pub fn not_below(&self, score: f64, tie: f64) -> f64 {
        let count = self.values.partition_point(|value| (1.0 + tie) * value >= score);
        count.checked_sub(1).map_or(0.0, |last| self.so_far[last].min(1.0))
    }

    /// Returns the expected value of a function of the score.
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

    /// Returns the score if the highest rate is the grid's at an index; the score of no rate for `None`.
    #[must_use]
    pub fn at(&self, highest: Option<usize>) -> f64 {
        highest.map_or(f64::INFINITY, |index| self.values[index + 1])
    }

    /// Returns the probability that the score is finite: that some rate meets the objective.
    #[must_use]
    pub fn is_finite(&self) -> f64 {
        self.expect(|value| f64::from(value.is_finite()))
    }
}

/// Returns the probability that no other candidate beats `score` by more than the tie margin; 0 for an infinite score.
#[must_use]
pub fn unbeaten(scores: &[&Scores], placed: &[bool], candidate: usize, score: f64, tie: f64) -> f64 {
    if !score.is_finite() {
        return 0.0;
    }
    let others = (0..scores.len()).filter(|&other| other != candidate && placed[other]);
    others.map(|other| scores[other].not_below(score, tie)).product()
}

/// Returns each candidate's probability of being best, from independent score distributions.
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

/// Returns each candidate's probability of being best by percentile: the highest confidence at which its interval lies
/// apart from those of the other candidates that meet the objective.
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
