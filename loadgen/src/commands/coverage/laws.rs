//! Latencies whose percentiles are known. In: a law and random numbers. Out: latencies in microseconds, and the true
//! percentile of all of them. Knows nothing of intervals.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, StandardNormal};
use std::time::Duration;
use tierlab_analysis::latency::availability;
use tierlab_analysis::statistics::dependence::Dependence;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::Schedule;

/// Microseconds that every law counts in.
const UNIT_US: f64 = 1_000.0;
/// How long a step warms up, as a share of its window: that of the shipped plans.
const WARMUP: f64 = 0.1;
/// Correlation of one request's modulation with the next one's.
const PHI: f64 = 0.95;
/// Repeats of a neighbouring rate that are looked at.
const NEIGHBOUR_REPEATS: usize = 3;
/// Mean requests in flight where each is for itself.
const IN_FLIGHT: f64 = 0.2;

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
}

impl Law {
    /// Every law: those of independent requests first.
    pub const ALL: [Self; 10] = [
        Self::Exponential,
        Self::Lognormal,
        Self::ColdWarm(10),
        Self::ColdWarm(5),
        Self::ColdWarm(1),
        Self::Modulated,
        Self::Queue(50),
        Self::Queue(70),
        Self::Queue(90),
        Self::Queue(95),
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
        }
    }

    /// Mean requests in flight, where one repeat's latencies are these.
    #[must_use]
    pub fn in_flight(self, latencies_us: &[u64]) -> f64 {
        match self {
            // One arrives in every unit.
            Self::Queue(_) => latencies_us.iter().sum::<u64>() as f64 / latencies_us.len().max(1) as f64 / UNIT_US,
            _ => IN_FLIGHT,
        }
    }

    /// The dependence that a point with so many in flight is taken to have. Spells of a slow machine are seen by the neighbouring
    /// rates alone, which are simulated here with samples of their own.
    #[must_use]
    pub(super) fn assumed(self, in_flight: f64, samples: usize, rng: &mut ChaCha8Rng) -> Dependence {
        let alone = availability::of_queue(in_flight);
        if self != Self::Modulated {
            return alone;
        }
        let [below, above] = [(); 2].map(|()| {
            let repeats: Vec<Dependence> = (0..NEIGHBOUR_REPEATS)
                .map(|_| {
                    let latencies = self.sample(rng, samples);
                    Dependence::of(&latencies.iter().map(|us| us.round() as u64).collect::<Vec<_>>())
                })
                .collect();
            let mean = |of: fn(&Dependence) -> f64| repeats.iter().map(of).sum::<f64>() / repeats.len() as f64;
            Some(Dependence {
                body: mean(|one| one.body),
                tail: mean(|one| one.tail),
            })
        });
        availability::beside(alone, below, above)
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
            Self::Queue(load) => queue(rng, f64::from(load) / 100.0, count),
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
            Self::Queue(load) => {
                let load = f64::from(load) / 100.0;
                1.0 - (-units * (1.0 - load) / load).exp()
            }
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

/// Sojourn times behind one server that is idle when the step begins, of the requests in the window.
pub(super) fn queue(rng: &mut ChaCha8Rng, load: f64, count: usize) -> Vec<f64> {
    let window = Duration::from_secs_f64(UNIT_US * count as f64 / 1e6);
    let warmup = window.mul_f64(WARMUP);
    let schedule = Schedule::new(&Arrivals::default(), 1e6 / UNIT_US, warmup, window, rng.random());
    let mut free_us = 0.0_f64;
    let mut latencies = Vec::with_capacity(count);
    for &due_us in &schedule.due_us {
        let began = free_us.max(due_us as f64);
        free_us = began + UNIT_US * load * exponential(rng);
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

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn samples_follow_their_law() {
        // Queues that start empty and are far from settled after the warm-up do not: that is what they are there for.
        for law in Law::ALL.into_iter().filter(|law| !matches!(law, Law::Queue(90..))) {
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
                    // Anywhere on the gap.
                    if [(Law::ColdWarm(5), 0.95), (Law::ColdWarm(1), 0.99)].contains(&(law, quantile)) {
                        continue;
                    }
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
        let p99 = Law::Queue(70).quantile(0.99, 0.0);
        assert!((p99 - 1_000.0 * 100.0_f64.ln() * 0.7 / 0.3).abs() < 1e-6);
    }
}
