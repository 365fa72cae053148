//! Probability of each candidate being the answer. In: each candidate's score distribution, or the logarithms of its steps' own
//! percentiles at one rate. Out: the probability that no other candidate is better by more than the tie margin. Knows nothing of steps.
//!
//! Percentiles are compared by Student's interval from the variance within all variants together; interim analysis `k`
//! spends the share `6 / (π² k²)` of the error (a union bound). It is the simplest interval that holds at every interim
//! analysis if logarithms of percentiles are about normal. It is wider than a confidence sequence by the method of
//! mixtures by less than a quarter.

use super::curve::HighestRate;
use crate::record::Interval;
use crate::statistics::student::t_two_sided;
use crate::statistics::{bisect, mean};
use std::f64::consts::PI;

/// Halvings in the search for the confidence at which percentiles differ.
const HALVINGS: usize = 12;
/// Prior standard deviation of the logarithm of a step's percentile.
const PRIOR_SPREAD: f64 = 0.2;
/// Degrees of freedom that the prior counts as.
const PRIOR_FREEDOM: f64 = 2.0;

/// Score distribution of a candidate.
#[derive(Debug, Clone)]
pub(crate) struct Scores {
    /// Scores in falling order, by rising highest rate; the first belongs to no rate at all.
    values: Vec<f64>,
    mass: Vec<f64>,
    /// Cumulative probability: that the score is no less than each value.
    cumulative: Vec<f64>,
}

impl Scores {
    /// Creates the distribution from the score at each rate of the curve's grid, falling. Meeting the objective at no
    /// rate scores infinity.
    pub(crate) fn new(by_rate: Vec<f64>, curve: &HighestRate) -> Self {
        let mut values = vec![f64::INFINITY];
        values.extend(by_rate);
        let mut mass = vec![curve.never_met];
        mass.extend(&curve.mass);
        let cumulative = mass.iter().scan(0.0, |sum, mass| {
            *sum += mass;
            Some(*sum)
        });
        Self {
            cumulative: cumulative.collect(),
            values,
            mass,
        }
    }

    /// Returns the probability that this score is not below `score` by more than the tie margin.
    pub(crate) fn not_below(&self, score: f64, tie: f64) -> f64 {
        let count = self.values.partition_point(|value| (1.0 + tie) * value >= score);
        count.checked_sub(1).map_or(0.0, |last| self.cumulative[last].min(1.0))
    }

    /// Returns the expected value of a function of the score.
    pub(crate) fn expect(&self, of: impl Fn(f64) -> f64) -> f64 {
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
    pub(crate) fn at(&self, highest: Option<usize>) -> f64 {
        highest.map_or(f64::INFINITY, |index| self.values[index + 1])
    }

    /// Returns the probability that the score is finite: that some rate meets the objective.
    pub(crate) fn finite_probability(&self) -> f64 {
        self.expect(|value| f64::from(value.is_finite()))
    }
}

/// Returns the probability that no other candidate beats `score` by more than the tie margin; 0 for an infinite score.
pub(crate) fn unbeaten(scores: &[&Scores], eligible: &[bool], candidate: usize, score: f64, tie: f64) -> f64 {
    if !score.is_finite() {
        return 0.0;
    }
    let others = (0..scores.len()).filter(|&other| other != candidate && eligible[other]);
    others.map(|other| scores[other].not_below(score, tie)).product()
}

/// Returns each candidate's probability of being best, from independent score distributions.
pub(crate) fn by_score(scores: &[&Scores], eligible: &[bool], tie: f64) -> Vec<f64> {
    let probability = |candidate: usize| match eligible[candidate] {
        true => scores[candidate].expect(|score| unbeaten(scores, eligible, candidate, score, tie)),
        false => 0.0,
    };
    (0..scores.len()).map(probability).collect()
}

/// Returns each candidate's probability of being best by percentile: the highest confidence at which its interval lies
/// apart from those of the other candidates that meet the objective.
pub(crate) fn by_percentile(logs: &[Vec<f64>], scores: &[&Scores], tie: f64) -> Vec<f64> {
    let meets: Vec<f64> = scores.iter().map(|scores| scores.finite_probability()).collect();
    let within = (1.0 + tie).ln();
    let is_apart = |candidate: usize, confidence: f64| {
        let intervals = intervals(logs, 1.0 - confidence);
        let Some(own) = intervals[candidate] else { return false };
        let others = (0..logs.len()).filter(|&other| other != candidate && meets[other] > 1.0 - confidence);
        let mut ends = others.map(|other| intervals[other].map_or(f64::NEG_INFINITY, |interval| interval.lo));
        ends.all(|lo| own.hi <= lo + within)
    };
    let probability = |candidate: usize| {
        let (confidence, _) = bisect((0.0, 1.0), HALVINGS, |confidence| is_apart(candidate, confidence));
        f64::min(confidence, meets[candidate])
    };
    (0..logs.len()).map(probability).collect()
}

/// Returns the interval of each variant's mean, as logarithms; `None` without steps. All hold together, at every
/// interim analysis, with probability `1 - error`.
pub(crate) fn intervals(logs: &[Vec<f64>], error: f64) -> Vec<Option<Interval>> {
    let squares = logs.iter().flat_map(|values| {
        let mean = mean(values);
        values.iter().map(move |value| (value - mean).powi(2))
    });
    let squares: f64 = squares.sum();
    let freedom: f64 = logs.iter().map(|values| values.len().saturating_sub(1) as f64).sum();
    let variance = (squares + PRIOR_FREEDOM * PRIOR_SPREAD * PRIOR_SPREAD) / (freedom + PRIOR_FREEDOM);
    let interval = |values: &Vec<f64>| {
        let count = values.len() as f64;
        (count > 0.0).then(|| {
            let share = error / logs.len() as f64 * 6.0 / (PI * PI * count * count);
            let half_width = t_two_sided(share, freedom + PRIOR_FREEDOM) * (variance / count).sqrt();
            let value = mean(values);
            Interval::new(value, value - half_width, value + half_width)
        })
    };
    logs.iter().map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn all_intervals_hold_at_every_look() {
        let mut missed = 0;
        for seed in 0..300 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut logs = vec![Vec::new(); 3];
            let mut ever = false;
            for _ in 0..25 {
                for (variant, values) in logs.iter_mut().enumerate() {
                    let push: f64 = StandardNormal.sample(&mut rng);
                    values.push(variant as f64 + 0.4 * push);
                }
                ever |= intervals(&logs, 0.05)
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .any(|(variant, interval)| {
                        let truth = variant as f64;
                        truth < interval.lo || truth > interval.hi
                    });
            }
            missed += usize::from(ever);
        }
        assert!(missed <= 15 + 7, "{missed} of 300");
    }

    #[test]
    fn steps_narrow_it_and_none_have_none() {
        let of = |steps: usize| intervals(&[vec![1.0; steps], Vec::new()], 0.05);
        let width = |steps| of(steps)[0].map(|interval| interval.hi - interval.lo).unwrap();
        assert!(width(16) < 0.7 * width(4) && of(4)[1].is_none());
    }
}
