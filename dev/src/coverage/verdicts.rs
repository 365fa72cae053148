//! Verdicts of a healthy server near its capacity, and of one that is offered more than it can do.
//!
//! Every trial is a point of a plan's schedules with their warm-up, through the recorder and the rules of verdicts, in front of one
//! queue that is empty when a step begins.

use super::{answer, point_of, served};
use crate::study::{exponential, margin, rng, seeds, share};
use crate::table::{Row, cell};
use std::time::{Duration, SystemTime};
use tierlab_analysis::all_figures;
use tierlab_analysis::record::{Limits, Repeat, Sample, Verdict};
use tierlab_analysis::validity::laws;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::driver::Finished;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::{Schedule, split_mix};
use tierlab_loadgen::runner::recorder::record;

/// Text above the table.
pub(super) const ABOUT: &str = "# Verdicts near capacity

Verdicts of points at 300 requests per second in front of one server, by the share of its capacity that they use. Steps go through a
plan's Poisson schedule and warm-up, and begin with an empty queue. In bold: less than 95 % valid up to a share of 0.95, or more than
1 % invalid from 1.05 on (two standard deviations of the simulation allowed).
";

/// Offered rate, in requests per second.
const RPS: f64 = 300.0;
/// Warm-up as a share of the window.
const WARMUP: f64 = 0.15;
/// Highest utilisation at which a server counts as healthy.
const HEALTHY: f64 = 0.95;
/// Least share of healthy points to be valid.
const VALID: f64 = 0.95;
/// Largest share of overloaded points to be invalid.
const INVALID: f64 = 0.01;

/// Simulated point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct VerdictSetting {
    /// If true, every service takes the same time (M/D/1); else it is exponential (M/M/1).
    is_constant: bool,
    /// Offered rate over the server's capacity.
    utilisation: f64,
    repeats: u32,
    /// Length of a window, in seconds.
    window_s: f64,
}

/// Settings of the kept table.
pub(super) fn settings() -> Vec<VerdictSetting> {
    let mut settings = Vec::new();
    for is_constant in [false, true] {
        for (repeats, window_s) in [(10, 1.5), (3, 5.0), (5, 10.0)] {
            for utilisation in [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.02, 1.05, 1.1, 1.2] {
                settings.push(VerdictSetting {
                    is_constant,
                    utilisation,
                    repeats,
                    window_s,
                });
            }
        }
    }
    settings
}

/// Simulates the points of a setting. The row holds if healthy points are valid and overloaded ones are not invalid.
pub(super) fn row(setting: VerdictSetting, trials: usize, seed: u64) -> Row {
    let (mut valid, mut saturated, mut invalid) = (0, 0, 0);
    for seed in seeds(trials, seed) {
        let repeats = (0..setting.repeats).map(|index| repeat(setting, index, split_mix(seed ^ u64::from(index))));
        match all_figures(&point_of(RPS, repeats.collect()), &Limits::default(), None).verdict {
            Verdict::Valid => valid += 1,
            Verdict::Saturated(_) => saturated += 1,
            Verdict::Invalid(_) => invalid += 1,
        }
    }
    let holds = if setting.utilisation <= HEALTHY {
        share(valid, trials) >= VALID - margin(VALID, trials)
    } else {
        setting.utilisation < 1.05 || share(invalid, trials) <= INVALID + margin(INVALID, trials)
    };
    Row {
        holds,
        cells: vec![
            cell("queue", if setting.is_constant { "M/D/1" } else { "M/M/1" }),
            cell("utilisation", setting.utilisation),
            cell("repeats", setting.repeats),
            cell("window_s", setting.window_s),
            cell("trials", trials),
            cell("valid", valid),
            cell("saturated", saturated),
            cell("invalid", invalid),
        ],
    }
}

/// One step, as the driver and the recorder make it.
fn repeat(setting: VerdictSetting, index: u32, seed: u64) -> Repeat {
    let window = Duration::from_secs_f64(setting.window_s);
    let schedule = Schedule::new(&Arrivals::default(), RPS, window.mul_f64(WARMUP), window, seed);
    let mut rng = rng(seed);
    let service_us = 1e6 * setting.utilisation / RPS;
    let served = served(&schedule, || match setting.is_constant {
        true => service_us,
        false => service_us * exponential(&mut rng),
    });
    let samples: Vec<Sample> = served
        .map(|(due_us, done_us)| answer(due_us, done_us.round() as u64))
        .collect();
    let window = schedule.window_start_us..schedule.window_end_us;
    let observed = Observed {
        mean_in_flight: laws::by_stays(&samples, &window),
        ..Observed::default()
    };
    let finished = Finished::of(samples, observed, SystemTime::UNIX_EPOCH);
    Repeat {
        index,
        seed,
        ..record(&finished, &schedule, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn healthy_points_are_valid_and_overloaded_ones_are_saturated() {
        for is_constant in [false, true] {
            for utilisation in [0.9, 1.1] {
                let setting = VerdictSetting {
                    is_constant,
                    utilisation,
                    repeats: 10,
                    window_s: 1.5,
                };
                let row = row(setting, 8, 7);
                assert!(row.holds, "{row:?}");
                assert!(utilisation <= HEALTHY || row.number("saturated") >= 7.0, "{row:?}");
            }
        }
    }
}
