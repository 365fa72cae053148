//! When requests are due. In: a rate, a warm-up, a window and a seed. Out: every due time of a step, before it starts.
//!
//! The Poisson process is conditioned on its count: a warm-up of `w` seconds and a window of `t` seconds at rate `r`
//! hold exactly `round(r w)` and `round(r t)` arrivals, placed as sorted independent uniforms. That is how the arrivals of
//! a Poisson process lie once their number is known (Cox and Lewis, 1966, section 2.1), so bursts and gaps
//! are a Poisson process's own, while two seeds offer the same number of requests and the achieved rate can be
//! held against the offered one without the noise of the count.

use crate::plan::Arrivals;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Streams of one step's seed, so that arrivals and keys do not depend on each other.
const ARRIVAL_STREAM: u64 = 1;

/// The due times of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Microseconds since the step's start, ascending.
    pub due_us: Vec<u64>,
    /// Where the measured window begins, in microseconds since the step's start.
    pub window_start_us: u64,
    /// Where it ends (exclusive).
    pub window_end_us: u64,
}

impl Schedule {
    /// Makes a step's schedule; the same arguments give the same schedule.
    #[must_use]
    pub fn new(arrivals: Arrivals, rate: f64, warmup: Duration, window: Duration, seed: u64) -> Self {
        let window_start_us = micros(warmup);
        let window_end_us = window_start_us + micros(window);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(ARRIVAL_STREAM);
        let mut due_us = Vec::new();
        for (start, end) in [(0, window_start_us), (window_start_us, window_end_us)] {
            place(&mut due_us, arrivals, rate, start..end, &mut rng);
        }
        Self {
            due_us,
            window_start_us,
            window_end_us,
        }
    }

    /// Whether a due time lies in the measured window.
    #[must_use]
    pub const fn in_window(&self, due_us: u64) -> bool {
        due_us >= self.window_start_us && due_us < self.window_end_us
    }

    /// Length of the measured window in seconds.
    #[must_use]
    pub fn window_s(&self) -> f64 {
        (self.window_end_us - self.window_start_us) as f64 / 1e6
    }
}

fn place(due_us: &mut Vec<u64>, arrivals: Arrivals, rate: f64, span: std::ops::Range<u64>, rng: &mut ChaCha8Rng) {
    let length = (span.end - span.start) as f64;
    let count = (rate * length / 1e6).round() as u64;
    let first = due_us.len();
    match arrivals {
        // Half a gap in, so that no arrival lies on the edge of the span.
        Arrivals::Constant => {
            let gap = length / count as f64;
            due_us.extend((0..count).map(|i| span.start + ((i as f64 + 0.5) * gap) as u64));
        }
        Arrivals::Poisson => {
            due_us.extend((0..count).map(|_| rng.random_range(span.clone())));
            due_us[first..].sort_unstable();
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A step's own seed. The same for every tier and cache state in a repeat, so that tiers are compared on the same
/// arrivals and keys; another for every repeat and load.
#[must_use]
pub fn step_seed(plan_seed: u64, repeat: u32, load_index: usize) -> u64 {
    let mixed = split_mix(plan_seed) ^ split_mix(u64::from(repeat) << 32 | load_index as u64);
    split_mix(mixed)
}

/// SplitMix64 (Steele, Lea and Flood, 2014): neighbouring inputs to unrelated outputs.
#[must_use]
pub(crate) const fn split_mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_schedule_is_sorted_counted_and_repeatable(
            rate in 1.0_f64..2_000.0, warmup_ms in 0_u64..2_000, window_ms in 1_000_u64..4_000, seed: u64, poisson: bool,
        ) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let (warmup, window) = (Duration::from_millis(warmup_ms), Duration::from_millis(window_ms));
            let schedule = Schedule::new(arrivals, rate, warmup, window, seed);
            prop_assert!(schedule.due_us.is_sorted());
            prop_assert!(schedule.due_us.last().is_none_or(|&due| due < schedule.window_end_us));
            let inside = schedule.due_us.iter().filter(|&&due| schedule.in_window(due)).count() as f64;
            prop_assert_eq!(inside, (rate * window.as_secs_f64()).round());
            prop_assert_eq!(&schedule, &Schedule::new(arrivals, rate, warmup, window, seed));
        }

        #[test]
        fn neighbouring_steps_have_unrelated_seeds(seed: u64, repeat in 0_u32..100, load in 0_usize..100) {
            let here = step_seed(seed, repeat, load);
            prop_assert_ne!(here, step_seed(seed, repeat + 1, load));
            prop_assert_ne!(here, step_seed(seed, repeat, load + 1));
            prop_assert_ne!(here, step_seed(seed.wrapping_add(1), repeat, load));
        }
    }

    #[test]
    fn constant_gaps_are_equal() {
        let schedule = Schedule::new(Arrivals::Constant, 500.0, Duration::ZERO, Duration::from_secs(2), 9);
        assert!(schedule.due_us.windows(2).all(|pair| pair[1] - pair[0] == 2_000));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let schedule = Schedule::new(Arrivals::Poisson, 1_000.0, Duration::ZERO, Duration::from_secs(100), 3);
        let gaps: Vec<f64> = schedule
            .due_us
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // Of an exponential, a share of e^-1 is above the mean and e^-3 above three of them.
        for (times, share) in [(1.0, 0.3679), (3.0, 0.0498)] {
            let above = gaps.iter().filter(|&&gap| gap > times * mean).count() as f64 / gaps.len() as f64;
            assert!(
                (above - share).abs() < 0.01,
                "{above} of the gaps are above {times} means"
            );
        }
    }
}
