//! Latencies whose percentiles are known. In: a law and random numbers. Out: latencies in microseconds, and the true
//! percentile of all of them. Knows nothing of intervals.

use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use std::time::Duration;
use tierlab_analysis::statistics::histogram::histogram;
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::Schedule;

/// Microseconds that every law counts in.
const UNIT_US: f64 = 1_000.0;
/// How long a step warms up, as a share of its window: that of the shipped plans.
const WARMUP: f64 = 0.1;
/// Correlation of one request's modulation with the next one's.
const PHI: f64 = 0.95;
/// Mean requests in flight where each is for itself: a long service without a queue.
const IN_FLIGHT: f64 = 10.0;
/// The lowest rate of a curve, as a share of the rate that is looked at.
pub(super) const LOWEST: f64 = 0.25;
/// Samples of a queue that its percentiles are taken from, and the fewest windows.
const KNOWN_BY: usize = 1_000_000;
const KNOWN_WINDOWS: usize = 1_000;

/// Where latencies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// Exponential, each for itself.
    Exponential,
    /// Lognormal with sigma 0.8, each for itself.
    Lognormal,
    /// So many percent cold at 15 units (sigma 0.4), the others warm at 1 (sigma 0.25), each for itself. With 5 the p95 lies
    /// on the gap between them, with 1 the p99.
    ColdWarm(u8),
    /// Lognormal, modulated by an AR(1) process: slow and fast spells of some dozens of requests.
    Modulated,
    /// Sojourn times of an M/M/1 queue at so many percent of its capacity. It starts empty and goes through a plan's schedule
    /// and warm-up.
    Queue(u8),
    /// The same with a constant service time (M/D/1).
    ConstantQueue(u8),
}

impl Law {
    /// Every law: those of independent requests first.
    pub const ALL: [Self; 12] = [
        Self::Exponential,
        Self::Lognormal,
        Self::ColdWarm(10),
        Self::ColdWarm(5),
        Self::ColdWarm(1),
        Self::Modulated,
        Self::Queue(50),
        Self::Queue(60),
        Self::Queue(80),
        Self::Queue(90),
        Self::ConstantQueue(60),
        Self::ConstantQueue(80),
    ];

    /// In a table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Exponential => "exponential".into(),
            Self::Lognormal => "lognormal".into(),
            Self::ColdWarm(cold) => format!("{cold} % cold"),
            Self::Modulated => "AR(1)-modulated".into(),
            Self::Queue(load) => format!("queue M/M/1 at {load} %"),
            Self::ConstantQueue(load) => format!("queue M/D/1 at {load} %"),
        }
    }

    /// True if its requests wait for each other.
    #[must_use]
    pub const fn is_queue(self) -> bool {
        matches!(self, Self::Queue(_) | Self::ConstantQueue(_))
    }

    /// Mean requests in flight at a mean latency.
    #[must_use]
    pub fn in_flight(self, mean_us: f64) -> f64 {
        // One arrives in every unit.
        if self.is_queue() { mean_us / UNIT_US } else { IN_FLIGHT }
    }

    /// Mean latency of one repeat at the lowest rate of its curve, in microseconds.
    #[must_use]
    pub(super) fn lowest_mean_us(self, rng: &mut ChaCha8Rng, count: usize) -> f64 {
        // Time runs slower where fewer arrive: the same service is a smaller load.
        let slower = match self {
            Self::Queue(load) => queue(rng, LOWEST * f64::from(load) / 100.0, count, exponential),
            Self::ConstantQueue(load) => queue(rng, LOWEST * f64::from(load) / 100.0, count, constant),
            _ => return self.sample(rng, count).iter().sum::<f64>() / count as f64,
        };
        slower.iter().sum::<f64>() / slower.len() as f64 / LOWEST
    }

    /// One repeat: latencies in the order of their arrival, in microseconds.
    #[must_use]
    pub fn sample(self, rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
        match self {
            Self::Exponential => (0..count).map(|_| UNIT_US * exponential(rng)).collect(),
            Self::Lognormal => (0..count).map(|_| UNIT_US * (0.8 * normal(rng)).exp()).collect(),
            Self::ColdWarm(cold) => (0..count)
                .map(|_| {
                    let (median, sigma) = if rng.random_bool(f64::from(cold) / 100.0) {
                        (15.0, 0.4)
                    } else {
                        (1.0, 0.25)
                    };
                    UNIT_US * median * (sigma * normal(rng)).exp()
                })
                .collect(),
            Self::Modulated => {
                let mut state = normal(rng);
                (0..count)
                    .map(|_| {
                        state = PHI * state + (1.0 - PHI * PHI).sqrt() * normal(rng);
                        UNIT_US * (0.6 * state + 0.5 * normal(rng)).exp()
                    })
                    .collect()
            }
            Self::Queue(load) => queue(rng, f64::from(load) / 100.0, count, exponential),
            Self::ConstantQueue(load) => queue(rng, f64::from(load) / 100.0, count, constant),
        }
    }

    /// The share of latencies at or below.
    #[must_use]
    pub fn cdf(self, us: f64) -> f64 {
        let units = us / UNIT_US;
        match self {
            Self::Exponential => 1.0 - (-units).exp(),
            Self::Lognormal => normal_cdf(units.ln() / 0.8),
            Self::ColdWarm(cold) => {
                let cold = f64::from(cold) / 100.0;
                (1.0 - cold) * normal_cdf(units.ln() / 0.25) + cold * normal_cdf((units / 15.0).ln() / 0.4)
            }
            Self::Modulated => normal_cdf(units.ln() / 0.6_f64.hypot(0.5)),
            Self::Queue(_) | Self::ConstantQueue(_) => f64::NAN,
        }
    }

    /// True percentiles over windows of so many requests, each window slower or faster by one of the factors with its weight.
    /// Those of a queue are simulated: each window begins with an idle server and a warm-up.
    #[must_use]
    pub fn quantiles(self, quantiles: &[f64], factors: &[(f64, f64)], samples: usize) -> Vec<f64> {
        let known = self.is_queue().then(|| self.many_windows(samples));
        let cdf = |us: f64| match &known {
            Some(known) => known.share_up_to(0..known.blocks(), us as u64).unwrap_or(0.0),
            None => self.cdf(us),
        };
        let weights: f64 = factors.iter().map(|(_, weight)| weight).sum();
        let share = |us: f64| {
            factors
                .iter()
                .map(|(factor, weight)| weight * cdf(us / factor))
                .sum::<f64>()
                / weights
        };
        let at = |quantile: &f64| {
            let (mut low, mut high) = (1.0_f64, 1e9);
            for _ in 0..60 {
                let middle = (low * high).sqrt();
                if share(middle) < *quantile {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            low
        };
        quantiles.iter().map(at).collect()
    }

    fn many_windows(self, samples: usize) -> BlockTable {
        let mut rng = ChaCha8Rng::seed_from_u64(17);
        let mut all = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).unwrap_or_else(|_| histogram(&[]));
        for _ in 0..(KNOWN_BY / samples).max(KNOWN_WINDOWS) {
            for us in self.sample(&mut rng, samples) {
                all.saturating_record(us.round() as u64);
            }
        }
        BlockTable::new([&[all][..]])
    }
}

/// Factors of repeats that differ by a lognormal spread, with their weights.
#[must_use]
pub(super) fn weathers(spread: f64) -> Vec<(f64, f64)> {
    let places = (-40..=40).map(|step| f64::from(step) / 10.0);
    let weighted = places.map(|z| ((spread * z).exp(), (-z * z / 2.0).exp()));
    if spread == 0.0 {
        vec![(1.0, 1.0)]
    } else {
        weighted.collect()
    }
}

/// Sojourn times behind one server that is idle when the step begins, of the requests in the window.
pub(super) fn queue(rng: &mut ChaCha8Rng, load: f64, count: usize, service: fn(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
    let window = Duration::from_secs_f64(UNIT_US * count as f64 / 1e6);
    let warmup = window.mul_f64(WARMUP);
    let schedule = Schedule::new(&Arrivals::default(), 1e6 / UNIT_US, warmup, window, rng.random());
    let mut free_us = 0.0_f64;
    let mut latencies = Vec::with_capacity(count);
    for &due_us in &schedule.due_us {
        let began = free_us.max(due_us as f64);
        free_us = began + UNIT_US * load * service(rng);
        if schedule.in_window(due_us) {
            latencies.push(free_us - due_us as f64);
        }
    }
    latencies
}

/// Whether something of this probability happens.
pub(super) fn chance(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    rng.random_bool(probability)
}

/// How much slower or faster a repeat is as a whole.
#[must_use]
pub(super) fn weather(rng: &mut ChaCha8Rng, spread: f64) -> f64 {
    (spread * normal(rng)).exp()
}

pub(super) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

pub(super) fn exponential(rng: &mut ChaCha8Rng) -> f64 {
    Exp1.sample(rng)
}

const fn constant(_: &mut ChaCha8Rng) -> f64 {
    1.0
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_follow_their_law() {
        let quantiles = [0.5, 0.95, 0.99];
        for law in Law::ALL.into_iter().filter(|law| !law.is_queue()) {
            for spread in [0.0, 0.1] {
                let mut rng = ChaCha8Rng::seed_from_u64(5);
                let mut all: Vec<f64> = (0..400)
                    .flat_map(|_| {
                        let factor = weather(&mut rng, spread);
                        law.sample(&mut rng, 1_000).into_iter().map(move |us| us * factor)
                    })
                    .collect();
                all.sort_by(f64::total_cmp);
                let truths = law.quantiles(&quantiles, &weathers(spread), 1_000);
                for (quantile, truth) in quantiles.into_iter().zip(truths) {
                    // Anywhere on the gap.
                    if [(Law::ColdWarm(5), 0.95), (Law::ColdWarm(1), 0.99)].contains(&(law, quantile)) {
                        continue;
                    }
                    let found = all[(quantile * all.len() as f64) as usize];
                    assert!(
                        (found / truth - 1.0).abs() < 0.05,
                        "{law:?} {spread} {quantile}: {found} {truth}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_queue_with_room_to_settle_has_the_percentiles_of_its_closed_form() {
        let found = Law::Queue(50).quantiles(&[0.5, 0.99], &weathers(0.0), 2_000);
        for (found, share) in found.into_iter().zip([0.5_f64, 0.01]) {
            let truth = -1_000.0 * share.ln();
            assert!((found / truth - 1.0).abs() < 0.02, "{found} {truth}");
        }
        let median = Law::Exponential.quantiles(&[0.5], &weathers(0.0), 10)[0];
        assert!((median - 1_000.0 * std::f64::consts::LN_2).abs() < 1e-3);
    }
}
