//! Latencies whose percentiles are known. In: a law and random numbers. Out: latencies in microseconds, and the true
//! percentile of all of them. Knows nothing of intervals.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};

/// Microseconds that every law counts in.
const UNIT_US: f64 = 1_000.0;
/// The queue's load, and its service time in units.
const LOAD: f64 = 0.7;
/// Correlation of one request's modulation with the next one's.
const PHI: f64 = 0.95;
/// Share of cold requests.
const COLD: f64 = 0.1;

/// Where latencies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// Exponential, each for itself.
    Exponential,
    /// Lognormal with sigma 0.8, each for itself.
    Lognormal,
    /// A tenth cold at 15 units (sigma 0.4), the others warm at 1 (sigma 0.25), each for itself.
    ColdWarm,
    /// Lognormal, modulated by an AR(1) process: slow and fast spells of some dozens of requests.
    Modulated,
    /// Sojourn times of an M/M/1 queue at a load of 0.7.
    Queue,
}

impl Law {
    /// Every law: those of independent requests first.
    pub const ALL: [Self; 5] = [
        Self::Exponential,
        Self::Lognormal,
        Self::ColdWarm,
        Self::Modulated,
        Self::Queue,
    ];

    /// In a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Lognormal => "lognormal",
            Self::ColdWarm => "cold/warm",
            Self::Modulated => "AR(1)-modulated",
            Self::Queue => "queue M/M/1",
        }
    }

    /// One repeat: latencies in the order of their arrival, in microseconds, the process in its steady state.
    #[must_use]
    pub fn sample(self, rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
        match self {
            Self::Exponential => (0..count).map(|_| UNIT_US * exponential(rng)).collect(),
            Self::Lognormal => (0..count).map(|_| UNIT_US * (0.8 * normal(rng)).exp()).collect(),
            Self::ColdWarm => (0..count)
                .map(|_| {
                    let (median, sigma) = if rng.random_bool(COLD) {
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
            Self::Queue => {
                // The stationary wait: none with probability 1 - load, else exponential.
                let mut wait = if rng.random_bool(LOAD) {
                    LOAD / (1.0 - LOAD) * exponential(rng)
                } else {
                    0.0
                };
                (0..count)
                    .map(|_| {
                        let sojourn = wait + LOAD * exponential(rng);
                        wait = (sojourn - exponential(rng)).max(0.0);
                        UNIT_US * sojourn
                    })
                    .collect()
            }
        }
    }

    /// The share of latencies at or below.
    #[must_use]
    pub fn cdf(self, us: f64) -> f64 {
        let units = us / UNIT_US;
        match self {
            Self::Exponential => 1.0 - (-units).exp(),
            Self::Lognormal => normal_cdf(units.ln() / 0.8),
            Self::ColdWarm => {
                (1.0 - COLD) * normal_cdf(units.ln() / 0.25) + COLD * normal_cdf((units / 15.0).ln() / 0.4)
            }
            Self::Modulated => normal_cdf(units.ln() / 0.6_f64.hypot(0.5)),
            Self::Queue => 1.0 - (-units * (1.0 - LOAD) / LOAD).exp(),
        }
    }

    /// The percentile over all repeats that could be, each slower or faster by a lognormal factor of `spread`.
    #[must_use]
    pub fn quantile(self, quantile: f64, spread: f64) -> f64 {
        let share = |us: f64| {
            if spread == 0.0 {
                return self.cdf(us);
            }
            let places = (-80..=80).map(|step| f64::from(step) / 20.0);
            let (sum, weights) = places.fold((0.0, 0.0), |(sum, weights), z| {
                let weight = (-z * z / 2.0).exp();
                (sum + weight * self.cdf(us / (spread * z).exp()), weights + weight)
            });
            sum / weights
        };
        let (mut low, mut high) = (1.0_f64, 1e9);
        for _ in 0..100 {
            let middle = (low * high).sqrt();
            if share(middle) < quantile {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
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

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn samples_follow_their_law() {
        for law in Law::ALL {
            for spread in [0.0, 0.1] {
                let mut rng = ChaCha8Rng::seed_from_u64(5);
                let mut all: Vec<f64> = (0..400)
                    .flat_map(|_| {
                        let factor = weather(&mut rng, spread);
                        law.sample(&mut rng, 1_000).into_iter().map(move |us| us * factor)
                    })
                    .collect();
                all.sort_by(f64::total_cmp);
                for quantile in [0.5, 0.95, 0.99] {
                    let found = all[(quantile * all.len() as f64) as usize];
                    let truth = law.quantile(quantile, spread);
                    assert!(
                        (found / truth - 1.0).abs() < 0.05,
                        "{law:?} {spread} {quantile}: {found} {truth}"
                    );
                }
            }
        }
    }

    #[test]
    fn closed_forms() {
        let median = Law::Exponential.quantile(0.5, 0.0);
        assert!((median - 1_000.0 * std::f64::consts::LN_2).abs() < 1e-6);
        let p99 = Law::Queue.quantile(0.99, 0.0);
        assert!((p99 - 1_000.0 * 100.0_f64.ln() * LOAD / (1.0 - LOAD)).abs() < 1e-6);
    }
}
