//! Latencies whose percentiles are known. In: a law and random numbers. Out: latencies in microseconds, and the true
//! percentile of all of them. Independent of intervals.

use super::served;
use crate::study::{exponential, normal, rng};
use hdrhistogram::Histogram;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tierlab_analysis::statistics::bisect;
use tierlab_analysis::statistics::percentile::{BlockTable, histogram};
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::Schedule;

/// Unit of every law, in microseconds.
const UNIT_US: f64 = 1_000.0;
/// Warm-up as a share of the window: that of the shipped plans.
const WARMUP: f64 = 0.1;
/// Correlation of one request's modulation with the next one's.
const PHI: f64 = 0.95;
/// Mean requests in flight without a queue: a long service.
const IN_FLIGHT: f64 = 10.0;
/// Lowest rate of a curve, as a share of the simulated rate.
pub(super) const LOWEST_SHARE: f64 = 0.25;
/// Samples of a queue for its true percentiles, and the fewest windows.
const REFERENCE_SAMPLES: usize = 1_000_000;
const REFERENCE_WINDOWS: usize = 1_000;

/// Distribution of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Law {
    /// Exponential, requests independent.
    Exponential,
    /// Lognormal with sigma 0.8, requests independent.
    Lognormal,
    /// So many percent cold at 15 units (sigma 0.4), the others warm at 1 (sigma 0.25), requests independent. With 5 the p95 lies
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

/// Draw of a number with mean 1.
type Draw = fn(&mut ChaCha8Rng) -> f64;

impl Law {
    /// Every law: those of independent requests first.
    pub(super) const ALL: [Self; 12] = [
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

    pub(super) fn name(self) -> String {
        match self {
            Self::Exponential => "exponential".into(),
            Self::Lognormal => "lognormal".into(),
            Self::ColdWarm(cold) => format!("{cold} % cold"),
            Self::Modulated => "AR(1)-modulated".into(),
            Self::Queue(load) => format!("queue M/M/1 at {load} %"),
            Self::ConstantQueue(load) => format!("queue M/D/1 at {load} %"),
        }
    }

    /// Load and service time of a queue.
    fn queue(self) -> Option<(f64, Draw)> {
        match self {
            Self::Queue(percent) => Some((f64::from(percent) / 100.0, exponential)),
            Self::ConstantQueue(percent) => Some((f64::from(percent) / 100.0, |_| 1.0)),
            _ => None,
        }
    }

    /// True if its requests wait for each other.
    pub(super) fn is_queue(self) -> bool {
        self.queue().is_some()
    }

    /// Mean requests in flight at a mean latency.
    pub(super) fn in_flight(self, mean_us: f64) -> f64 {
        // One arrives in every unit.
        if self.is_queue() { mean_us / UNIT_US } else { IN_FLIGHT }
    }

    /// Mean latency of one repeat at the lowest rate of its curve, in microseconds.
    pub(super) fn lowest_mean_us(self, rng: &mut ChaCha8Rng, count: usize) -> f64 {
        // Time runs slower where fewer arrive: the same service is a smaller load.
        let (latencies, slower) = match self.queue() {
            Some((load, service)) => (queue(rng, LOWEST_SHARE * load, count, service), LOWEST_SHARE),
            None => (self.sample(rng, count), 1.0),
        };
        latencies.iter().sum::<f64>() / latencies.len() as f64 / slower
    }

    /// One repeat: latencies in the order of their arrival, in microseconds.
    pub(super) fn sample(self, rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
        if let Some((load, service)) = self.queue() {
            return queue(rng, load, count, service);
        }
        let mut state = if self == Self::Modulated { normal(rng) } else { 0.0 };
        let units = |_| match self {
            Self::Lognormal => (0.8 * normal(rng)).exp(),
            Self::ColdWarm(cold) if rng.random_bool(f64::from(cold) / 100.0) => 15.0 * (0.4 * normal(rng)).exp(),
            Self::ColdWarm(_) => (0.25 * normal(rng)).exp(),
            Self::Modulated => {
                state = PHI * state + (1.0 - PHI * PHI).sqrt() * normal(rng);
                (0.6 * state + 0.5 * normal(rng)).exp()
            }
            Self::Exponential | Self::Queue(_) | Self::ConstantQueue(_) => exponential(rng),
        };
        (0..count).map(units).map(|units| UNIT_US * units).collect()
    }

    /// Share of latencies at or below, of independent requests.
    fn cdf(self, us: f64) -> f64 {
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
    pub(super) fn quantiles(self, quantiles: &[f64], factors: &[(f64, f64)], samples: usize) -> Vec<f64> {
        let reference = self.is_queue().then(|| self.reference_table(samples));
        let cdf = |us: f64| match &reference {
            Some(reference) => reference.share_up_to(0..reference.blocks(), us as u64).unwrap_or(0.0),
            None => self.cdf(us),
        };
        let weights: f64 = factors.iter().map(|(_, weight)| weight).sum();
        let share = |us: f64| {
            let each = factors.iter().map(|(factor, weight)| weight * cdf(us / factor));
            each.sum::<f64>() / weights
        };
        let at = |quantile: &f64| {
            let (low, _) = bisect((0.0, 1e9_f64.ln()), 60, |log: f64| share(log.exp()) < *quantile);
            low.exp()
        };
        quantiles.iter().map(at).collect()
    }

    fn reference_table(self, samples: usize) -> BlockTable {
        let mut rng = rng(17);
        let mut all = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).unwrap_or_else(|_| histogram(&[]));
        for _ in 0..(REFERENCE_SAMPLES / samples).max(REFERENCE_WINDOWS) {
            for us in self.sample(&mut rng, samples) {
                all.saturating_record(us.round() as u64);
            }
        }
        BlockTable::new([&[all][..]])
    }
}

/// Sojourn times behind one server that is idle when the step begins, of the requests in the window.
fn queue(rng: &mut ChaCha8Rng, load: f64, count: usize, service: fn(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
    let window = Duration::from_secs_f64(UNIT_US * count as f64 / 1e6);
    let (warmup, rps) = (window.mul_f64(WARMUP), 1e6 / UNIT_US);
    let schedule = Schedule::new(&Arrivals::default(), rps, warmup, window, rng.random());
    let served = served(&schedule, || UNIT_US * load * service(rng));
    let measured = served.filter(|(due_us, _)| schedule.in_window(*due_us));
    measured.map(|(due_us, done_us)| done_us - due_us as f64).collect()
}

fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{noise_quantiles, repeat_noise};

    #[test]
    fn samples_follow_their_law() {
        let quantiles = [0.5, 0.95, 0.99];
        for law in Law::ALL.into_iter().filter(|law| !law.is_queue()) {
            for spread in [0.0, 0.1] {
                let mut rng = rng(5);
                let mut all: Vec<f64> = (0..400)
                    .flat_map(|_| {
                        let factor = repeat_noise(&mut rng, spread);
                        law.sample(&mut rng, 1_000).into_iter().map(move |us| us * factor)
                    })
                    .collect();
                all.sort_by(f64::total_cmp);
                let truths = law.quantiles(&quantiles, &noise_quantiles(spread), 1_000);
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
        let found = Law::Queue(50).quantiles(&[0.5, 0.99], &noise_quantiles(0.0), 2_000);
        for (found, share) in found.into_iter().zip([0.5_f64, 0.01]) {
            let truth = -1_000.0 * share.ln();
            assert!((found / truth - 1.0).abs() < 0.02, "{found} {truth}");
        }
        let median = Law::Exponential.quantiles(&[0.5], &noise_quantiles(0.0), 10)[0];
        assert!((median - 1_000.0 * std::f64::consts::LN_2).abs() < 1e-3);
    }
}
