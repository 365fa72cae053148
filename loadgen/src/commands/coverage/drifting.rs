//! How often a latency that drifts is found, and one that does not is said to.
//!
//! In: a number of trials and a seed. Out: rows. Every trial goes through `tierlab_analysis::validity::stationarity` as a point does.

use super::laws::{self, Law, normal, weather};
use super::simulated;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::record::Repeat;
use tierlab_analysis::validity::stationarity::drifts;
use tierlab_load::schedule::split_mix;

/// What a point that does not drift may be said to do at most, within what chance explains.
const FALSE_ALARMS: f64 = 0.02;
/// Autocorrelation times after which a queue that was idle at first has filled.
const SETTLED: f64 = 8.0;
/// Required power for a drift with ten repeats of at least 500 requests, and for one of the tail alone with 5,000 requests.
const FOUND: f64 = 0.9;

/// How the latency changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It does not.
    Still(Law),
    /// Its median goes from 20 to 183 ms over the repeats.
    Ninefold,
    /// It grows by 40 % within every window.
    Within,
    /// Of 3 % of the requests it grows fivefold over the repeats.
    Tail,
    /// The last half of the repeats takes 29 ms where the first takes 13.
    Two,
    /// It grows by 10 % over the repeats and by 5 % within every window: bounded.
    Bounded,
}

impl Shape {
    /// In a table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Still(law) => format!("none: {}", law.name()),
            Self::Ninefold => "20 to 183 ms over the repeats".into(),
            Self::Within => "40 % within every window".into(),
            Self::Tail => "3 % of the requests, fivefold over the repeats".into(),
            Self::Two => "13 ms, then 29 ms".into(),
            Self::Bounded => "bounded: 10 % over the repeats, 5 % within every window".into(),
        }
    }

    fn latencies(self, rng: &mut ChaCha8Rng, far: f64, samples: usize) -> Vec<f64> {
        let factor = weather(rng, 0.03);
        if let Self::Still(law) = self {
            return law.sample(rng, samples).into_iter().map(|us| us * factor).collect();
        }
        (0..samples)
            .map(|request| {
                let within = request as f64 / samples as f64;
                let us = 10_000.0 * factor * (0.3 * normal(rng)).exp();
                match self {
                    Self::Still(_) => us,
                    Self::Ninefold => us * 2.0 * 9.15_f64.powf(far),
                    Self::Within => us * (1.0 + 0.4 * within),
                    Self::Tail if laws::chance(rng, 0.03) => {
                        30_000.0 * (1.0 + 4.0 * far) * (1.0 + laws::exponential(rng))
                    }
                    Self::Tail => us,
                    Self::Two => us * if far >= 0.5 { 2.9 } else { 1.3 },
                    Self::Bounded => us * (1.0 + 0.1 * far) * (1.0 + 0.05 * within),
                }
            })
            .collect()
    }

    const fn drifts(self) -> bool {
        !matches!(self, Self::Still(_) | Self::Bounded)
    }
}

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriftSetting {
    /// How the latency changes.
    pub shape: Shape,
    /// Repeats of a point.
    pub repeats: usize,
    /// Samples in each.
    pub samples: usize,
}

impl DriftSetting {
    /// Whether repeats are long enough for a queue that starts empty.
    fn is_settled(self) -> bool {
        let Shape::Still(Law::Queue(percent)) = self.shape else {
            return true;
        };
        let load = f64::from(percent) / 100.0;
        // Half of the queue's relaxation time, in requests.
        let time = 2.0 / (1.0 - load).powi(2);
        self.samples as f64 >= SETTLED * (time - 2.0)
    }
}

/// The settings of the kept table.
#[must_use]
pub fn drift_settings() -> Vec<DriftSetting> {
    let still = [
        Law::Exponential,
        Law::Lognormal,
        Law::ColdWarm(1),
        Law::Modulated,
        Law::Queue(50),
        Law::Queue(70),
        Law::Queue(90),
        Law::Queue(95),
    ];
    let moves = [Shape::Bounded, Shape::Ninefold, Shape::Within, Shape::Tail, Shape::Two];
    let shapes = still.map(Shape::Still).into_iter().chain(moves);
    let sizes = [(3, 500), (3, 2_000), (5, 1_000), (10, 240), (10, 500), (10, 1_000)];
    shapes
        .flat_map(|shape| {
            sizes.map(|(repeats, samples)| DriftSetting {
                shape,
                repeats,
                samples,
            })
        })
        .collect()
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct DriftRow {
    /// What was simulated.
    pub setting: DriftSetting,
    /// Trials.
    pub trials: usize,
    /// Trials in which a drift was seen.
    pub found: usize,
}

impl DriftRow {
    /// Share of the trials in which a drift was seen.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.found as f64 / self.trials.max(1) as f64
    }

    /// Whether it is as it should be, within what chance explains (two standard deviations): seldom seen where there is
    /// none, mostly where there is one and the design is that of the shipped plans. A queue that has not filled when its
    /// repeats end does drift, though nothing about its server changes: either answer is right.
    #[must_use]
    pub fn holds(&self) -> bool {
        let chance = |share: f64| 2.0 * (share * (1.0 - share) / self.trials.max(1) as f64).sqrt();
        let has_tail = self.setting.shape == Shape::Tail && self.setting.repeats * self.setting.samples >= 5_000;
        let shipped = has_tail || (self.setting.repeats >= 10 && self.setting.samples >= 500);
        if !self.setting.is_settled() {
            true
        } else if self.setting.shape.drifts() {
            !shipped || self.share() >= FOUND - chance(FOUND)
        } else {
            self.share() <= FALSE_ALARMS + chance(FALSE_ALARMS)
        }
    }
}

/// The points of a setting.
#[must_use]
pub fn drift_row(setting: DriftSetting, trials: usize, seed: u64) -> DriftRow {
    let found = (0..trials).filter(|trial| {
        let mut rng = ChaCha8Rng::seed_from_u64(split_mix(seed.wrapping_add(*trial as u64)));
        let repeats: Vec<Repeat> = (0..setting.repeats)
            .map(|index| {
                let far = index as f64 / (setting.repeats - 1) as f64;
                let latencies = setting.shape.latencies(&mut rng, far, setting.samples);
                simulated::repeat(index, &latencies, 100.0)
            })
            .collect();
        !drifts(&repeats).is_empty()
    });
    DriftRow {
        setting,
        trials,
        found: found.count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn drifts_are_found_and_queues_are_not_said_to_drift() {
        for shape in [
            Shape::Still(Law::Queue(90)),
            Shape::Bounded,
            Shape::Ninefold,
            Shape::Within,
            Shape::Two,
        ] {
            let row = drift_row(
                DriftSetting {
                    shape,
                    repeats: 10,
                    samples: 500,
                },
                60,
                3,
            );
            assert!(row.holds(), "{}: {}", shape.name(), row.share());
        }
    }
}
