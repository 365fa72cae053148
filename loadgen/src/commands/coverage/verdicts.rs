//! Verdicts of a healthy server near its capacity, and of one that is offered more than it can do.
//!
//! In: a number of trials and a seed. Out: rows. Every trial is a point of a plan's schedules with their warm-up, through the
//! recorder and the rules of verdicts, in front of one queue that is empty when a step begins.

use super::laws::exponential;
use crate::runner::recorder::{Label, record};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};
use tierlab_analysis::record::{Limits, Outcome, Repeat, Sample, Verdict};
use tierlab_analysis::validity::littles_law;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::driver::Finished;
use tierlab_load::pacer::Observed;
use tierlab_load::schedule::{Schedule, split_mix};

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

/// Points that are simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerdictSetting {
    /// If true, every service takes the same time (M/D/1); else it is exponential (M/M/1).
    pub is_constant: bool,
    /// Offered rate over the server's capacity.
    pub utilisation: f64,
    /// Repeats of a point.
    pub repeats: u32,
    /// Length of a window, in seconds.
    pub window_s: f64,
}

impl VerdictSetting {
    const fn queue(&self) -> &'static str {
        if self.is_constant { "M/D/1" } else { "M/M/1" }
    }
}

/// The settings of the kept table.
#[must_use]
pub fn verdict_settings() -> Vec<VerdictSetting> {
    let mut settings = Vec::new();
    for is_constant in [false, true] {
        for (repeats, window_s) in [(10, 1.5), (3, 5.0), (5, 10.0)] {
            settings.extend(
                [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.02, 1.05, 1.1, 1.2].map(|utilisation| VerdictSetting {
                    is_constant,
                    utilisation,
                    repeats,
                    window_s,
                }),
            );
        }
    }
    settings
}

/// Verdicts of a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct VerdictRow {
    /// The points.
    pub setting: VerdictSetting,
    /// Trials.
    pub trials: usize,
    /// Valid points.
    pub valid: usize,
    /// Saturated points.
    pub saturated: usize,
}

impl VerdictRow {
    /// Points of which nothing is known.
    #[must_use]
    pub const fn invalid(&self) -> usize {
        self.trials - self.valid - self.saturated
    }

    /// True if healthy points are valid and overloaded ones known, within two standard deviations of the simulation.
    #[must_use]
    pub fn holds(&self) -> bool {
        let trials = self.trials.max(1) as f64;
        let chance = |share: f64| 2.0 * (share * (1.0 - share) / trials).sqrt();
        if self.setting.utilisation <= HEALTHY {
            self.valid as f64 / trials >= VALID - chance(VALID)
        } else {
            self.setting.utilisation < 1.05 || self.invalid() as f64 / trials <= INVALID + chance(INVALID)
        }
    }
}

/// The points of a setting.
#[must_use]
pub fn verdict_row(setting: VerdictSetting, trials: usize, seed: u64) -> VerdictRow {
    let mut row = VerdictRow {
        setting,
        trials,
        valid: 0,
        saturated: 0,
    };
    for trial in 0..trials {
        let seed = split_mix(seed.wrapping_add(trial as u64));
        let repeats = (0..setting.repeats).map(|index| repeat(setting, index, split_mix(seed ^ u64::from(index))));
        let point = super::simulated::point(RPS, repeats.collect());
        match tierlab_analysis::all_figures(&point, &Limits::default(), None).verdict {
            Verdict::Valid => row.valid += 1,
            Verdict::Saturated(_) => row.saturated += 1,
            Verdict::Invalid(_) => {}
        }
    }
    row
}

pub(super) fn csv(rows: &[VerdictRow]) -> String {
    let mut text = String::from("queue,utilisation,repeats,window_s,trials,valid,saturated,invalid\n");
    for row in rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{}",
            row.setting.queue(),
            row.setting.utilisation,
            row.setting.repeats,
            row.setting.window_s,
            row.trials,
            row.valid,
            row.saturated,
            row.invalid()
        );
    }
    text
}

pub(super) fn markdown(rows: &[VerdictRow]) -> String {
    let mut text = String::from(ABOUT);
    for row in rows {
        let share = |count: usize| 100.0 * count as f64 / row.trials.max(1) as f64;
        let valid = format!("{:.1} %", share(row.valid));
        let _ = writeln!(
            text,
            "| {} | {} × {} s | {:.2} | {} | {:.1} % | {:.1} % |",
            row.setting.queue(),
            row.setting.repeats,
            row.setting.window_s,
            row.setting.utilisation,
            if row.holds() { valid } else { format!("**{valid}**") },
            share(row.saturated),
            share(row.invalid())
        );
    }
    text
}

const ABOUT: &str = "
## Verdicts near capacity

Verdicts of points at 300 requests per second in front of one server, by the share of its capacity that they use. Steps go through a
plan's Poisson schedule and warm-up, and begin with an empty queue. In bold: less than 95 % valid up to a share of 0.95, or more than
1 % invalid from 1.05 on (two standard deviations of the simulation allowed).

| queue | repeats | share of capacity | valid | saturated | invalid |
|---|---|---|---|---|---|
";

/// One step, as the driver and the recorder make it.
fn repeat(setting: VerdictSetting, index: u32, seed: u64) -> Repeat {
    let window = Duration::from_secs_f64(setting.window_s);
    let schedule = Schedule::new(&Arrivals::default(), RPS, window.mul_f64(WARMUP), window, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let service_us = 1e6 * setting.utilisation / RPS;
    let mut free_us = 0.0_f64;
    let served = schedule.due_us.iter().map(|&due_us| {
        let factor = if setting.is_constant {
            1.0
        } else {
            exponential(&mut rng)
        };
        free_us = free_us.max(due_us as f64) + service_us * factor;
        Sample {
            due_us,
            sent_us: due_us,
            done_us: free_us.round() as u64,
            outcome: Outcome::Ok,
            timings: None,
        }
    });
    let samples: Vec<Sample> = served.collect();
    let window = schedule.window_start_us..schedule.window_end_us;
    let finished = Finished {
        examples: BTreeMap::new(),
        observed: Observed {
            limit_hit: false,
            mean_in_flight: littles_law::by_stays(&samples, &window),
        },
        samples,
        window_began: SystemTime::UNIX_EPOCH,
    };
    let label = Label {
        index,
        seed,
        hdr_file: String::new(),
    };
    record(label, &finished, &schedule, None)
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
                let row = verdict_row(setting, 8, 7);
                assert!(row.holds(), "{row:?}");
                assert!(utilisation <= HEALTHY || row.saturated >= 7, "{row:?}");
            }
        }
    }
}
