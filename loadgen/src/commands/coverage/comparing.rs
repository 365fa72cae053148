//! Power of `compare`, and its false alarms, by simulation.
//!
//! In: a number of trials and a seed. Out: rows. Every trial is a pair of points of ten repeats of 2 s, with the same seeds, and so
//! the same arrivals, in both; both go through the schedule and warm-up of a plan and through
//! `tierlab_analysis::curves::comparison`. Repeats differ by a factor of their own in each run, as if the two had been made one
//! after the other: by 2 % on a quiet machine. In the run kept in `results/quick-2core`, two shared cores, medians differ by 3 to
//! 25 %, by 7 % in the middle of its points.

use super::laws::{chance, exponential, normal, weather};
use super::simulated;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tierlab_analysis::curves::comparison::{Decision, WITHIN, decide};
use tierlab_analysis::curves::per_repeat::figures;
use tierlab_analysis::record::{Limits, Point, Verdict};
use tierlab_analysis::summarise;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::{Schedule, split_mix};

const REPEATS: usize = 10;
const WINDOW: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_millis(200);
/// Spread of a quiet machine, on which differences must be found.
const QUIET: f64 = 0.02;
/// Largest share of the pairs that may be called worse if nothing changed.
const CALLED: f64 = 0.05;
/// Share of the requests that a heavier tail slows down.
const TAIL: f64 = 0.02;
/// Latency of those requests as a multiple of the p99 before.
const TAIL_TIMES: f64 = 9.67;

/// Latencies of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Lognormal (sigma 0.5), without a queue.
    Lognormal,
    /// Lognormal (sigma 0.25), of which so many percent take ten times as long, without a queue.
    Bimodal(u8),
    /// M/M/1 queue.
    Queue,
}

/// Difference of B from A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slower {
    /// Every service takes this share longer.
    By(f64),
    /// Two percent of the services take nearly ten times the p99.
    Tail,
}

/// One row's simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompareSetting {
    /// Law of the latencies.
    pub service: Service,
    /// Median service time in milliseconds; the mean of a queue's.
    pub service_ms: f64,
    /// Offered rate per second.
    pub rps: f64,
    /// Spread between repeats.
    pub spread: f64,
    /// Difference of B.
    pub slower: Slower,
}

impl CompareSetting {
    /// Law of the latencies in words.
    #[must_use]
    pub fn service(self) -> String {
        match self.service {
            Service::Lognormal => "lognormal".to_owned(),
            Service::Bimodal(percent) => format!("{percent} % ten times as long"),
            Service::Queue => format!("queue M/M/1 at {:.0} %", self.rps * self.service_ms / 10.0),
        }
    }

    /// Difference in words.
    #[must_use]
    pub fn slower(self) -> String {
        match self.slower {
            Slower::By(share) => format!("{:.0} %", 100.0 * share),
            Slower::Tail => "p99 ten times".to_owned(),
        }
    }
}

/// The settings of the kept table.
#[must_use]
pub fn compare_settings() -> Vec<CompareSetting> {
    let servers = [
        (Service::Lognormal, 1.0, 500.0, QUIET),
        (Service::Lognormal, 20.0, 300.0, QUIET),
        (Service::Lognormal, 100.0, 500.0, QUIET),
        (Service::Bimodal(2), 20.0, 300.0, QUIET),
        (Service::Queue, 7.0 / 3.0, 300.0, QUIET),
        (Service::Lognormal, 20.0, 300.0, 0.07),
    ];
    let by = [0.0, 0.1, 0.2].map(Slower::By);
    let mut settings = Vec::new();
    for (service, service_ms, rps, spread) in servers {
        let tail = (service == Service::Lognormal && spread == QUIET).then_some(Slower::Tail);
        settings.extend(by.into_iter().chain(tail).map(|slower| CompareSetting {
            service,
            service_ms,
            rps,
            spread,
            slower,
        }));
    }
    settings
}

/// Result of one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareRow {
    /// Simulated setting.
    pub setting: CompareSetting,
    /// Pairs.
    pub trials: usize,
    /// Pairs that end as a regression: a figure is worse, or the point is no longer held.
    pub worse: usize,
    /// Pairs in which any figure is better and none is worse.
    pub better: usize,
    /// Pairs in which the median is equivalent.
    pub equivalent: usize,
    /// Sum of the smallest changes of the median that could have been found.
    pub smallest: f64,
    /// Pairs of points that are both valid.
    pub valid: usize,
    /// Sum of the requests in flight in A.
    pub in_flight: f64,
}

impl CompareRow {
    /// Share of the pairs called worse.
    #[must_use]
    pub fn worse_share(&self) -> f64 {
        self.worse as f64 / self.trials.max(1) as f64
    }

    /// True if the row is as promised, within two standard deviations of the simulation: nothing is promised of differences on a
    /// machine that is not quiet.
    #[must_use]
    pub fn holds(&self) -> bool {
        let margin = |share: f64| 2.0 * (share * (1.0 - share) / self.trials.max(1) as f64).sqrt();
        let wanted = match self.setting.slower {
            Slower::By(0.0) => return self.worse_share() <= CALLED + margin(CALLED),
            _ if self.setting.spread > QUIET => return true,
            Slower::By(share) if share < 0.2 => 0.8,
            Slower::By(_) => 0.95,
            Slower::Tail => 1.0,
        };
        self.worse_share() >= wanted - margin(wanted)
    }
}

/// The pairs of a setting.
#[must_use]
pub fn compare_row(setting: CompareSetting, trials: usize, seed: u64) -> CompareRow {
    let mut row = CompareRow {
        setting,
        trials,
        worse: 0,
        better: 0,
        equivalent: 0,
        smallest: 0.0,
        valid: 0,
        in_flight: 0.0,
    };
    for trial in 0..trials {
        let seed = split_mix(seed.wrapping_add(trial as u64));
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let a = one(&mut rng, setting, Slower::By(0.0), seed);
        let b = one(&mut rng, setting, setting.slower, seed);
        row.in_flight += a.repeats[0].mean_in_flight;
        let verdicts = [&a, &b].map(|point| point.summary.as_ref().map(|summary| &summary.verdict));
        let [Some(Verdict::Valid), Some(Verdict::Valid)] = verdicts else {
            let lost = matches!(verdicts, [Some(Verdict::Valid), Some(Verdict::Saturated(_))]);
            row.worse += usize::from(lost);
            continue;
        };
        row.valid += 1;
        let decided = decide(&[figures(&a, &b, [None, None])], WITHIN, Limits::default().error_share).remove(0);
        let any = |decision| decided.iter().any(|one| one.decision == decision);
        row.worse += usize::from(any(Decision::Worse));
        row.better += usize::from(any(Decision::Better) && !any(Decision::Worse));
        row.equivalent += usize::from(decided[0].decision == Decision::Equivalent);
        row.smallest += decided[0].smallest.unwrap_or(f64::INFINITY);
    }
    row
}

/// One point. The arrivals of a repeat depend on `seed` and its index alone.
fn one(rng: &mut ChaCha8Rng, setting: CompareSetting, slower: Slower, seed: u64) -> Point {
    let repeats = (0..REPEATS)
        .map(|index| {
            let arrivals_seed = split_mix(seed ^ index as u64);
            let schedule = Schedule::new(&Arrivals::default(), setting.rps, WARMUP, WINDOW, arrivals_seed);
            let factor = weather(rng, setting.spread);
            let latencies = latencies(rng, &schedule, setting, slower, factor);
            let mut repeat = simulated::repeat(index, &latencies, setting.rps);
            // A few replies more or fewer come in before a window's end.
            repeat.achieved_rps *= 1.0 + 0.001 * normal(rng);
            repeat
        })
        .collect();
    let mut point = [simulated::point(setting.rps, repeats)];
    summarise(&mut point, &Limits::default(), None);
    let [point] = point;
    point
}

/// Latencies of the requests in the window, in microseconds.
fn latencies(
    rng: &mut ChaCha8Rng,
    schedule: &Schedule,
    setting: CompareSetting,
    slower: Slower,
    factor: f64,
) -> Vec<f64> {
    let by = match slower {
        Slower::By(share) => 1.0 + share,
        Slower::Tail => 1.0,
    };
    let service_us = 1_000.0 * setting.service_ms * factor * by;
    // The p99 of a lognormal with sigma 0.5 is exp(2.326 * 0.5) medians.
    let tail_us = service_us * TAIL_TIMES * (0.5 * 2.326_f64).exp();
    let mut free_us = 0.0_f64;
    let mut latencies = Vec::with_capacity(schedule.window_requests);
    for &due_us in &schedule.due_us {
        let latency = match setting.service {
            Service::Lognormal if slower == Slower::Tail && chance(rng, TAIL) => tail_us,
            Service::Lognormal => service_us * (0.5 * normal(rng)).exp(),
            Service::Bimodal(percent) => {
                let times = if chance(rng, f64::from(percent) / 100.0) {
                    10.0
                } else {
                    1.0
                };
                service_us * times * (0.25 * normal(rng)).exp()
            }
            Service::Queue => {
                free_us = free_us.max(due_us as f64) + service_us * exponential(rng);
                free_us - due_us as f64
            }
        };
        if schedule.in_window(due_us) {
            latencies.push(latency);
        }
    }
    latencies
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn differences_are_found_and_nothing_is_called_where_nothing_changed() {
        let quiet = compare_settings().into_iter().filter(|setting| {
            let latencies = (setting.service, setting.service_ms);
            setting.spread == QUIET && [(Service::Lognormal, 20.0), (Service::Queue, 7.0 / 3.0)].contains(&latencies)
        });
        let rows: Vec<CompareRow> = quiet.map(|setting| compare_row(setting, 40, 5)).collect();
        assert_eq!(rows.len(), 7);
        for row in rows {
            assert!(row.holds(), "{row:?}");
        }
    }
}
