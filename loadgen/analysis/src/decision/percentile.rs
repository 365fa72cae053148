//! Comparison of a percentile between variants, valid at every look.
//!
//! In: the logarithms of the steps' own percentiles at one rate, by variant. Out: an interval of the mean for each.
//! Knows nothing of objectives.
//!
//! Student's interval from the variance within all variants together; look `k` has the share `6 / (π² k²)` of the error
//! (a union bound over all looks). It is the simplest interval that holds at every look if logarithms of percentiles
//! are about normal. It is wider than a confidence sequence by the method of mixtures by less than a quarter.

use crate::record::Interval;
use crate::statistics::student::t_two_sided;
use std::f64::consts::PI;

/// Prior standard deviation of the logarithm of a step's percentile.
const SPREAD: f64 = 0.2;
/// Degrees of freedom that the prior counts as.
const FREEDOM: f64 = 2.0;

/// Returns the interval of each variant's mean, as logarithms; `None` without steps. All hold together, at every look,
/// with probability `1 - wrong`.
#[must_use]
pub fn intervals(logs: &[Vec<f64>], wrong: f64) -> Vec<Option<Interval>> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let squares: f64 = logs
        .iter()
        .flat_map(|values| {
            let mean = mean(values);
            values.iter().map(move |value| (value - mean).powi(2))
        })
        .sum();
    let freedom: f64 = logs.iter().map(|values| values.len().saturating_sub(1) as f64).sum();
    let variance = (squares + FREEDOM * SPREAD * SPREAD) / (freedom + FREEDOM);
    logs.iter()
        .map(|values| {
            let count = values.len() as f64;
            (count > 0.0).then(|| {
                let share = wrong / logs.len() as f64 * 6.0 / (PI * PI * count * count);
                let reach = t_two_sided(share, freedom + FREEDOM) * (variance / count).sqrt();
                let value = mean(values);
                Interval {
                    value,
                    lo: value - reach,
                    hi: value + reach,
                }
            })
        })
        .collect()
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
