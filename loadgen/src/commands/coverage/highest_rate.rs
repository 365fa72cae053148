//! How often the interval of a highest rate under an objective contains the true one.
//!
//! In: a number of trials and a seed. Out: rows. Every trial is a search as the runner makes it: rates chosen by
//! [`tierlab_analysis::curves::search`], points summarised and judged by `tierlab-analysis`, verdicts and all, on a server that never was. Its p99 at
//! any rate is known, and so is the rate at which that reaches the limit; the repeats of every rate differ by a factor of
//! their own, and the truth is that of all repeats that could be.

use super::laws::{Law, exponential, normal, weather, weathers};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tierlab_analysis::curves::search::{MAX_PROBES, Search, lowest_rate};
use tierlab_analysis::curves::{Curve, slo};
use tierlab_analysis::record::{
    Interval, Limits, Objective, Outcome, Percentile, Point, Repeat, Sample, Slo, SloOutcome, Summary,
};
use tierlab_analysis::statistics::dependence::Dependence;
use tierlab_analysis::{all_figures, backlog_slope, withhold};
use tierlab_load::schedule::split_mix;

/// Time blocks of a repeat.
const BLOCKS: usize = 5;
/// Where the latency of every server goes without bound, in requests per second.
const CAPACITY_RPS: f64 = 400.0;
/// Where the true highest rate lies.
const TRUTH_RPS: f64 = 250.0;
const RESOLUTION: f64 = 0.05;

/// A server whose latency is a law's times `1 / (capacity - rate)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// One queue with exponential service (M/M/1): requests depend on each other, the more the higher the rate.
    Queue,
    /// Lognormal (sigma 0.8), each request for itself, and slower with the rate.
    Slowing,
}

impl Server {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Slowing, Self::Queue];

    /// In a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue M/M/1",
            Self::Slowing => "lognormal, slower with the rate",
        }
    }

    /// Of a repeat, in seconds: long enough that a p99 at the boundary mostly has an interval, which behind a queue takes
    /// several times as many requests.
    #[must_use]
    pub const fn window_s(self) -> f64 {
        match self {
            Self::Queue => 16.0,
            Self::Slowing => 4.0,
        }
    }

    /// Microseconds that the law is multiplied by.
    fn unit_us(rps: f64) -> f64 {
        1e6 / (CAPACITY_RPS - rps)
    }

    /// The p99 over all repeats that could be, in microseconds.
    #[must_use]
    pub fn p99_us(self, rps: f64, spread: f64) -> f64 {
        // A sojourn in the queue is exponential.
        let law = match self {
            Self::Queue => Law::Exponential,
            Self::Slowing => Law::Lognormal,
        };
        Self::unit_us(rps) * law.quantiles(&[0.99], &weathers(spread), 1)[0] / 1e3
    }

    /// The requests of a step, by the time at which they were due.
    fn sample(self, rng: &mut ChaCha8Rng, rps: f64, factor: f64) -> Vec<Sample> {
        let count = (rps * self.window_s()).round() as usize;
        // The stationary wait: none with a probability of 1 - load, else exponential.
        let load = (rps / CAPACITY_RPS).min(0.999);
        let mut wait_s = if super::laws::chance(rng, load) {
            exponential(rng) / (CAPACITY_RPS - rps).max(0.4)
        } else {
            0.0
        };
        let mut due_s = 0.0;
        (0..count)
            .map(|_| {
                let gap_s = exponential(rng) / rps;
                due_s += gap_s;
                let latency_us = match self {
                    Self::Queue => {
                        let sojourn_s = wait_s + exponential(rng) / CAPACITY_RPS;
                        wait_s = (sojourn_s - exponential(rng) / rps).max(0.0);
                        1e6 * sojourn_s
                    }
                    // Beyond its capacity it answers as at 99.9 % of it, for as long as there is a step.
                    Self::Slowing => Self::unit_us(rps.min(0.999 * CAPACITY_RPS)) * (0.8 * normal(rng)).exp(),
                };
                let due_us = (1e6 * due_s) as u64;
                Sample {
                    due_us,
                    sent_us: due_us,
                    done_us: due_us + (factor * latency_us).round() as u64,
                    outcome: Outcome::Ok,
                    timings: None,
                }
            })
            .collect()
    }
}

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSetting {
    /// What is searched.
    pub server: Server,
    /// How much repeats differ: the standard deviation of the logarithm of their factor.
    pub spread: f64,
    /// All repeats of a rate at the boundary.
    pub repeats: u32,
}

/// The settings of the kept table.
#[must_use]
pub fn search_settings() -> Vec<SearchSetting> {
    let mut settings = Vec::new();
    for server in Server::ALL {
        for repeats in [3, 5] {
            settings.extend([0.0, 0.1].map(|spread| SearchSetting {
                server,
                spread,
                repeats,
            }));
        }
    }
    settings
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRow {
    /// What was simulated.
    pub setting: SearchSetting,
    /// Searches.
    pub trials: usize,
    /// Searches that ended with a highest rate.
    pub found: usize,
    /// Of these, those whose interval has two measured ends: it is open where no rate certainly met the objective, or none
    /// certainly did not.
    pub closed: usize,
    /// Closed intervals that contain the truth.
    pub closed_covered: usize,
    /// Of all found, those whose interval lies above the truth, and below it.
    pub above: usize,
    /// See `above`.
    pub below: usize,
    /// Sum of the closed intervals' upper end over their lower.
    pub widths: f64,
    /// Sum of the distances of the rate from the true one, as shares.
    pub off: f64,
    /// Sum of the steps that were measured.
    pub steps: u64,
}

impl SearchRow {
    /// Share of the searches with a highest rate whose interval contains the truth.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        1.0 - (self.above + self.below) as f64 / self.found.max(1) as f64
    }

    /// The same of those with two measured ends.
    #[must_use]
    pub fn closed_coverage(&self) -> f64 {
        self.closed_covered as f64 / self.closed.max(1) as f64
    }

    /// Mean of the closed intervals' upper end over their lower.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.widths / self.closed.max(1) as f64
    }

    /// Whether it covers at least what was promised, within what `trials` trials can tell (two standard deviations).
    #[must_use]
    pub fn holds(&self) -> bool {
        let chance = 2.0 * (0.05_f64 * 0.95 / self.found.max(1) as f64).sqrt();
        self.coverage() >= super::rows::WANTED.0 - chance
    }

    fn count(&mut self, interval: Interval, (lowest, highest): (f64, f64)) {
        self.found += 1;
        // The ends are measured rates, which have three digits.
        let (above, below) = (interval.lo > 1.002 * TRUTH_RPS, interval.hi < 0.998 * TRUTH_RPS);
        self.above += usize::from(above);
        self.below += usize::from(below);
        self.off += (interval.value / TRUTH_RPS - 1.0).abs();
        if interval.lo >= lowest && interval.hi < highest {
            self.closed += 1;
            self.closed_covered += usize::from(!above && !below);
            self.widths += interval.hi / interval.lo;
        }
    }
}

/// The searches of a setting.
#[must_use]
pub fn search_row(setting: SearchSetting, trials: usize, seed: u64) -> SearchRow {
    let mut row = SearchRow {
        setting,
        trials,
        found: 0,
        closed: 0,
        closed_covered: 0,
        above: 0,
        below: 0,
        widths: 0.0,
        off: 0.0,
        steps: 0,
    };
    let objective = Objective::Percentile {
        percentile: Percentile::P99,
        limit_us: setting.server.p99_us(TRUTH_RPS, setting.spread),
    };
    let samples = objective.samples_needed();
    let slo = Slo {
        objective,
        error_share: 0.001,
        lowest_rps: lowest_rate(samples, setting.repeats, setting.server.window_s()),
        highest_rps: 20.0 * CAPACITY_RPS,
        resolution: RESOLUTION,
    };
    for trial in 0..trials {
        let seed = split_mix(seed.wrapping_add(trial as u64));
        let points = searched(setting, &slo, samples, seed);
        row.steps += points.iter().map(|point| point.repeats.len() as u64).sum::<u64>();
        let curve = Curve {
            points: points.iter().collect(),
        };
        let found = slo::finding(&curve, &slo, &Limits::default()).filter(|found| found.outcome == SloOutcome::Found);
        if let Some(interval) = found.and_then(|found| found.highest_rps) {
            row.count(interval, (slo.lowest_rps, slo.highest_rps));
        }
    }
    row
}

/// A search carried out: its points, by rising rate.
fn searched(setting: SearchSetting, slo: &Slo, samples: u64, seed: u64) -> Vec<Point> {
    let search = Search {
        start_rps: 0.3 * TRUTH_RPS,
        lowest_rps: slo.lowest_rps,
        highest_rps: slo.highest_rps,
        resolution: slo.resolution,
        repeats: setting.repeats,
        samples,
        window_s: setting.server.window_s(),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut points: Vec<Point> = Vec::new();
    // What a rate says by itself is computed once, and not again for every rate that comes after it.
    let mut figures: BTreeMap<u64, Summary> = BTreeMap::new();
    let mut known: Vec<slo::Evidence> = Vec::new();
    for _ in 0..MAX_PROBES {
        let Some(probe) = search.next(&known) else { break };
        let mut point = match points.iter().position(|point| point.factors.offered_rps == probe.rps) {
            Some(index) => points.swap_remove(index),
            None => Point {
                factors: super::simulated::factors(probe.rps),
                repeats: Vec::new(),
                summary: None,
            },
        };
        while point.repeats.len() < probe.repeats as usize {
            let factor = weather(&mut rng, setting.spread);
            let sent = setting.server.sample(&mut rng, probe.rps, factor);
            point
                .repeats
                .push(repeat(point.repeats.len() as u32, setting.server.window_s(), &sent));
        }
        figures.insert(probe.rps.to_bits(), all_figures(&point, &Limits::default(), None));
        points.push(point);
        points.sort_by(|a, b| a.factors.offered_rps.total_cmp(&b.factors.offered_rps));
        for point in &mut points {
            point.summary = figures.get(&point.factors.offered_rps.to_bits()).cloned();
        }
        withhold(&mut points);
        known = points.iter().filter_map(|point| slo::evidence(point, slo)).collect();
    }
    points
}

/// Repeat with the dependence and the backlog of its samples.
fn repeat(index: u32, window_s: f64, sent: &[Sample]) -> Repeat {
    let latencies: Vec<u64> = sent.iter().map(Sample::latency_us).collect();
    let dependence = Dependence::of(&latencies);
    Repeat {
        seed: 0,
        autocorrelation_time: dependence.body,
        tail_autocorrelation_time: Some(dependence.tail),
        backlog_slope: backlog_slope(sent),
        ..super::simulated::answered(index, &latencies, window_s, BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laws_of_the_servers_are_as_written() {
        for server in Server::ALL {
            for spread in [0.0, 0.1] {
                let mut rng = ChaCha8Rng::seed_from_u64(3);
                let mut all: Vec<u64> = (0..400)
                    .flat_map(|_| {
                        let factor = weather(&mut rng, spread);
                        let sent = server.sample(&mut rng, 200.0, factor);
                        sent.iter().map(Sample::latency_us).collect::<Vec<_>>()
                    })
                    .collect();
                all.sort_unstable();
                let found = all[(0.99 * all.len() as f64) as usize] as f64;
                let truth = server.p99_us(200.0, spread);
                assert!(
                    (found / truth - 1.0).abs() < 0.04,
                    "{server:?} {spread}: {found} {truth}"
                );
            }
        }
        // ln(100) / (400 - 200) s.
        assert!((Server::Queue.p99_us(200.0, 0.0) - 23_025.85).abs() < 1.0);
    }

    /// A much smaller version of the kept table.
    #[test]
    fn the_interval_of_a_highest_rate_contains_it() {
        let setting = SearchSetting {
            server: Server::Slowing,
            spread: 0.1,
            repeats: 3,
        };
        let row = search_row(setting, 12, 5);
        // Of the rates that a search tries few have samples enough for an interval of their p99, so that most are open.
        assert!(row.found >= 11, "{row:?}");
        assert!(row.coverage() >= 0.75 && row.off / (row.found as f64) < 0.15, "{row:?}");
        let queue = SearchSetting {
            server: Server::Queue,
            ..setting
        };
        let [one, other] = [7, 7].map(|seed| search_row(queue, 1, seed));
        assert_eq!(one, other);
        assert_eq!(one.found, 1);
    }
}
