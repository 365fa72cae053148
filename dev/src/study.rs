//! Settings simulated on every core, and the precision of their trials.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tierlab_load::schedule::split_mix;

/// Simulates each setting with a seed of its own; returns the results in the order of the settings.
pub(crate) fn simulate<S: Copy + Sync, R: Send>(
    name: &str,
    settings: &[S],
    seed: u64,
    one: impl Fn(S, u64) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(&setting) = settings.get(index) else { break };
        let result = one(setting, split_mix(seed ^ split_mix(index as u64)));
        if let Ok(mut found) = found.lock() {
            found.push((index, result));
            eprintln!("{name} [{}/{}]", found.len(), settings.len());
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, result)| result).collect()
}

/// Share of a count; 0 of none.
pub(crate) fn share(part: usize, of: usize) -> f64 {
    part as f64 / of.max(1) as f64
}

/// Two standard deviations of a share that is counted over so many trials.
pub(crate) fn margin(share: f64, trials: usize) -> f64 {
    2.0 * (share * (1.0 - share) / trials.max(1) as f64).sqrt()
}
