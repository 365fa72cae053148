//! Random numbers of the studies, all of them from seeds.

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use tierlab_load::schedule::split_mix;

/// Generator of one trial.
pub(crate) fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Seeds of so many trials.
pub(crate) fn seeds(trials: usize, seed: u64) -> impl Iterator<Item = u64> {
    (0..trials as u64).map(move |trial| split_mix(seed.wrapping_add(trial)))
}

/// Draws from the standard normal distribution.
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Draws from the exponential distribution with mean 1.
pub(crate) fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    Exp1.sample(rng)
}

/// Draws the factor by which a whole repeat is slower; `spread` is the standard deviation of its logarithm.
pub(crate) fn weather(rng: &mut ChaCha8Rng, spread: f64) -> f64 {
    (spread * normal(rng)).exp()
}

/// Factors of [`weather`] with their weights.
pub(crate) fn weathers(spread: f64) -> Vec<(f64, f64)> {
    let steps = if spread == 0.0 { 0..=0 } else { -40..=40 };
    let factors = steps.map(|step| f64::from(step) / 10.0);
    factors.map(|z| ((spread * z).exp(), (-z * z / 2.0).exp())).collect()
}
