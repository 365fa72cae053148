//! Settings simulated on every core, the precision of their trials, and their random numbers, all of them from seeds.

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tierlab_load::schedule::split_mix;

/// Simulates so many trials of each setting with a seed of its own; returns the results in the order of the settings.
pub(crate) fn simulate<S: Copy + Sync, R: Send>(
    name: &str,
    settings: &[S],
    trials: usize,
    seed: u64,
    row: impl Fn(S, usize, u64) -> R + Sync,
) -> Vec<R> {
    let next_index = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let worker = || loop {
        let index = next_index.fetch_add(1, Ordering::Relaxed);
        let Some(&setting) = settings.get(index) else { break };
        let result = row(setting, trials, split_mix(seed ^ split_mix(index as u64)));
        if let Ok(mut results) = results.lock() {
            results.push((index, result));
            eprintln!("{name} [{}/{}]", results.len(), settings.len());
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(worker);
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Share of a count; 0 of none.
pub(crate) fn share(part: usize, of: usize) -> f64 {
    part as f64 / of.max(1) as f64
}

/// Two standard deviations of a share that is counted over so many trials.
pub(crate) fn margin(share: f64, trials: usize) -> f64 {
    2.0 * (share * (1.0 - share) / trials.max(1) as f64).sqrt()
}

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
pub(crate) fn repeat_noise(rng: &mut ChaCha8Rng, spread: f64) -> f64 {
    (spread * normal(rng)).exp()
}

/// Factors of [`repeat_noise`] with their weights.
pub(crate) fn noise_quantiles(spread: f64) -> Vec<(f64, f64)> {
    let steps = if spread == 0.0 { 0..=0 } else { -40..=40 };
    let factors = steps.map(|step| f64::from(step) / 10.0);
    factors.map(|z| ((spread * z).exp(), (-z * z / 2.0).exp())).collect()
}
