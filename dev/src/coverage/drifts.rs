//! Share of drifting points that are found, and of others that are said to drift. Every trial goes through
//! `tierlab_analysis::validity::stationarity` as a point does.

use super::laws::Law;
use super::repeat;
use crate::study::{exponential, margin, normal, repeat_noise, rng, seeds, share};
use crate::table::{Row, cell, fixed};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::record::Repeat;
use tierlab_analysis::validity::stationarity::drifts;

/// Text above the table.
pub(super) const ABOUT: &str = "# Drift

Trials in which a point of so many repeats and requests is said to drift (`tierlab_analysis::validity::stationarity`), by the median or
by the slowest 1 %, within repeats or from one to the next. In bold: more than 2 % if nothing drifts or the drift is bounded, less than
90 % of what drifts with ten repeats of 500 requests or more (two standard deviations of the simulation allowed). Repeats differ by 3 %.
A queue whose repeats end before it has filled does drift, though its server stays the same, and is not judged.
";

/// Largest share of points without a drift that may be said to drift.
const FALSE_ALARMS: f64 = 0.02;
/// Autocorrelation times after which a queue that was idle at first has filled.
const SETTLED: f64 = 8.0;
/// Required power for a drift with ten repeats of at least 500 requests, and for one of the tail alone with 5,000 requests.
const FOUND: f64 = 0.9;

/// Change of the latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The law does not change.
    Stationary(Law),
    /// The median goes from 20 to 183 ms over the repeats.
    Ninefold,
    /// Latency grows by 40 % within every window.
    Within,
    /// Latency of 3 % of the requests grows fivefold over the repeats.
    Tail,
    /// The last half of the repeats takes 29 ms, the first 13.
    Two,
    /// Latency grows by 10 % over the repeats and by 5 % within every window: bounded.
    Bounded,
}

impl Shape {
    fn name(self) -> String {
        match self {
            Self::Stationary(law) => format!("none: {}", law.name()),
            Self::Ninefold => "20 to 183 ms over the repeats".into(),
            Self::Within => "40 % within every window".into(),
            Self::Tail => "3 % of the requests, fivefold over the repeats".into(),
            Self::Two => "13 ms, then 29 ms".into(),
            Self::Bounded => "bounded: 10 % over the repeats, 5 % within every window".into(),
        }
    }

    fn latencies(self, rng: &mut ChaCha8Rng, progress: f64, samples: usize) -> Vec<f64> {
        let factor = repeat_noise(rng, 0.03);
        if let Self::Stationary(law) = self {
            return law.sample(rng, samples).into_iter().map(|us| us * factor).collect();
        }
        let latency = |request| {
            let within = request as f64 / samples as f64;
            let us = 10_000.0 * factor * (0.3 * normal(rng)).exp();
            match self {
                Self::Ninefold => us * 2.0 * 9.15_f64.powf(progress),
                Self::Within => us * (1.0 + 0.4 * within),
                Self::Tail if rng.random_bool(0.03) => 30_000.0 * (1.0 + 4.0 * progress) * (1.0 + exponential(rng)),
                Self::Two => us * if progress >= 0.5 { 2.9 } else { 1.3 },
                Self::Bounded => us * (1.0 + 0.1 * progress) * (1.0 + 0.05 * within),
                Self::Stationary(_) | Self::Tail => us,
            }
        };
        (0..samples).map(latency).collect()
    }
}

/// Simulated point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DriftSetting {
    shape: Shape,
    repeats: usize,
    /// Samples in each repeat.
    samples: usize,
}

impl DriftSetting {
    /// True if repeats are long enough for a queue that starts empty.
    fn is_settled(self) -> bool {
        let Shape::Stationary(Law::Queue(percent)) = self.shape else {
            return true;
        };
        let load = f64::from(percent) / 100.0;
        // Half of the queue's relaxation time, in requests.
        let time = 2.0 / (1.0 - load).powi(2);
        self.samples as f64 >= SETTLED * (time - 2.0)
    }

    /// True if a drift is seldom seen without one, and mostly with one in the design of the shipped plans. A queue that has not filled
    /// when its repeats end does drift, though nothing about its server changes: either answer is right.
    fn holds(self, found: f64, trials: usize) -> bool {
        let has_tail = self.shape == Shape::Tail && self.repeats * self.samples >= 5_000;
        let shipped = has_tail || (self.repeats >= 10 && self.samples >= 500);
        match self.shape {
            _ if !self.is_settled() => true,
            Shape::Stationary(_) | Shape::Bounded => found <= FALSE_ALARMS + margin(FALSE_ALARMS, trials),
            _ => !shipped || found >= FOUND - margin(FOUND, trials),
        }
    }
}

/// Settings of the kept table.
pub(super) fn settings() -> Vec<DriftSetting> {
    let stationary = [
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
    let shapes = stationary.map(Shape::Stationary).into_iter().chain(moves);
    let sizes = [(3, 500), (3, 2_000), (5, 1_000), (10, 240), (10, 500), (10, 1_000)];
    let setting = |shape, (repeats, samples)| DriftSetting {
        shape,
        repeats,
        samples,
    };
    shapes
        .flat_map(|shape| sizes.map(|size| setting(shape, size)))
        .collect()
}

/// Simulates the points of a setting.
pub(super) fn row(setting: DriftSetting, trials: usize, seed: u64) -> Row {
    let drifting = seeds(trials, seed).filter(|seed| {
        let mut rng = rng(*seed);
        let repeats: Vec<Repeat> = (0..setting.repeats)
            .map(|index| {
                let progress = index as f64 / (setting.repeats - 1) as f64;
                let latencies = setting.shape.latencies(&mut rng, progress, setting.samples);
                repeat(index, &latencies, 100.0)
            })
            .collect();
        !drifts(&repeats).is_empty()
    });
    let found = drifting.count();
    let found_share = share(found, trials);
    Row {
        holds: setting.holds(found_share, trials),
        cells: vec![
            cell("shape", setting.shape.name()),
            cell("repeats", setting.repeats),
            cell("samples_per_repeat", setting.samples),
            cell("trials", trials),
            cell("found", found),
            fixed("share", 4, found_share),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn drifts_are_found_and_queues_are_not_said_to_drift() {
        let stationary = Shape::Stationary(Law::Queue(90));
        for shape in [stationary, Shape::Bounded, Shape::Ninefold, Shape::Within, Shape::Two] {
            let setting = DriftSetting {
                shape,
                repeats: 10,
                samples: 500,
            };
            let row = row(setting, 60, 3);
            assert!(row.holds, "{row:?}");
        }
    }
}
