//! Coverage of the interval of a highest rate under an objective.
//!
//! Every trial is a search as the runner makes it: rates chosen by [`tierlab_analysis::curves::search`], points summarised and judged by
//! `tierlab-analysis`, on a simulated server. Its p99 at any rate is known, and so is the rate at which that reaches the limit; the
//! repeats of every rate differ by a factor of their own, and the truth is that of all repeats that could be.

use super::intervals::TARGET_COVERAGE;
use super::laws::Law;
use super::{answer, answered, point_of};
use crate::study::{exponential, margin, noise_quantiles, normal, repeat_noise, rng, seeds, share};
use crate::table::{Row, cell, fixed};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use tierlab_analysis::curves::search::{MAX_PROBES, Search, lowest_rate};
use tierlab_analysis::curves::{Curve, slo};
use tierlab_analysis::record::{Limits, Objective, Percentile, Point, Repeat, Sample, Slo, SloOutcome, Summary};
use tierlab_analysis::statistics::dependence::Dependence;
use tierlab_analysis::{all_figures, backlog_slope, withhold};

/// Text above the table.
pub(super) const ABOUT: &str = "# Highest rate under an objective

Searches for the highest rate with `p99 < limit`, as a plan's `[search]` makes them (windows of 4 s, behind the queue of 16 s; rates
within 5 %), on servers whose p99 at any rate is known; the true highest rate is 250/s. `coverage` is the share of the searches whose
interval contains it; `above` and `below` count those whose interval lies above it, and below. The interval reaches from the highest rate
that certainly meets the objective to the lowest that certainly does not; where one of the two was not found it is open on that side, and
contains the truth for that reason alone. `closed` counts those with both ends. `closed_width` is upper end over lower. `mean_off` is the
mean distance of the rate itself from the true one.
";

/// Time blocks of a repeat.
const BLOCKS: usize = 5;
/// Rate at which the latency of every server grows without bound, in requests per second.
const CAPACITY_RPS: f64 = 400.0;
/// True highest rate.
const TRUTH_RPS: f64 = 250.0;
const RESOLUTION: f64 = 0.05;

/// Server whose latency is a law's times `1 / (capacity - rate)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchedServer {
    /// One queue with exponential service (M/M/1): requests depend on each other, the more the higher the rate.
    Queue,
    /// Lognormal (sigma 0.8), requests independent, and slower with the rate.
    Slowing,
}

impl SearchedServer {
    /// Name in the table, and length of a repeat in seconds: long enough that a p99 at the boundary mostly has an interval, which behind
    /// a queue takes several times as many requests.
    const fn terms(self) -> (&'static str, f64) {
        match self {
            Self::Queue => ("queue M/M/1", 16.0),
            Self::Slowing => ("lognormal, slower with the rate", 4.0),
        }
    }

    const fn window_s(self) -> f64 {
        self.terms().1
    }

    /// Microseconds that the law is multiplied by.
    fn unit_us(rps: f64) -> f64 {
        1e6 / (CAPACITY_RPS - rps)
    }

    /// The p99 over all repeats that could be, in microseconds.
    fn p99_us(self, rps: f64, spread: f64) -> f64 {
        // A sojourn in the queue is exponential.
        let law = match self {
            Self::Queue => Law::Exponential,
            Self::Slowing => Law::Lognormal,
        };
        Self::unit_us(rps) * law.quantiles(&[0.99], &noise_quantiles(spread), 1)[0] / 1e3
    }

    /// The requests of a step, by the time at which they were due.
    fn sample(self, rng: &mut ChaCha8Rng, rps: f64, factor: f64) -> Vec<Sample> {
        // The stationary wait: none with a probability of 1 - load, else exponential.
        let is_busy = rng.random_bool((rps / CAPACITY_RPS).min(0.999));
        let mut wait_s = match is_busy {
            true => exponential(rng) / (CAPACITY_RPS - rps).max(0.4),
            false => 0.0,
        };
        let mut due_s = 0.0;
        let sample = |_| {
            due_s += exponential(rng) / rps;
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
            answer(due_us, due_us + (factor * latency_us).round() as u64)
        };
        (0..(rps * self.window_s()).round() as usize).map(sample).collect()
    }
}

/// Simulated search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SearchSetting {
    server: SearchedServer,
    /// Standard deviation of the logarithm of the repeats' factors.
    spread: f64,
    /// All repeats of a rate at the boundary.
    repeats: u32,
}

/// Settings of the kept table.
pub(super) fn settings() -> Vec<SearchSetting> {
    let mut settings = Vec::new();
    for server in [SearchedServer::Slowing, SearchedServer::Queue] {
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

/// Simulates the searches of a setting. The row holds if the intervals cover at least 92 %.
pub(super) fn row(setting: SearchSetting, trials: usize, seed: u64) -> Row {
    let (mut found, mut closed, mut closed_covered, mut above, mut below) = (0, 0, 0, 0, 0);
    let (mut widths, mut off, mut steps) = (0.0, 0.0, 0);
    let objective = Objective::Percentile {
        percentile: Percentile::P99,
        limit_us: setting.server.p99_us(TRUTH_RPS, setting.spread),
    };
    let slo = Slo {
        objective,
        error_share: 0.001,
        lowest_rps: lowest_rate(objective.samples_needed(), setting.repeats, setting.server.window_s()),
        highest_rps: 20.0 * CAPACITY_RPS,
        resolution: RESOLUTION,
    };
    for seed in seeds(trials, seed) {
        let points = searched(setting, &slo, seed);
        steps += points.iter().map(|point| point.repeats.len()).sum::<usize>();
        let curve = Curve {
            points: points.iter().collect(),
        };
        let finding = slo::finding(&curve, &slo, &Limits::default()).filter(|one| one.outcome == SloOutcome::Found);
        let Some(interval) = finding.and_then(|finding| finding.highest_rps) else {
            continue;
        };
        found += 1;
        // The ends are measured rates, which have three digits.
        let (is_above, is_below) = (interval.lo > 1.002 * TRUTH_RPS, interval.hi < 0.998 * TRUTH_RPS);
        above += usize::from(is_above);
        below += usize::from(is_below);
        off += (interval.value / TRUTH_RPS - 1.0).abs();
        if interval.lo >= slo.lowest_rps && interval.hi < slo.highest_rps {
            closed += 1;
            closed_covered += usize::from(!is_above && !is_below);
            widths += interval.hi / interval.lo;
        }
    }
    let coverage = 1.0 - share(above + below, found);
    Row {
        holds: coverage >= TARGET_COVERAGE.0 - margin(0.05, found),
        cells: vec![
            cell("server", setting.server.terms().0),
            cell("spread", setting.spread),
            cell("repeats", setting.repeats),
            cell("trials", trials),
            cell("found", found),
            fixed("coverage", 4, coverage),
            cell("above", above),
            cell("below", below),
            cell("closed", closed),
            fixed("closed_coverage", 4, share(closed_covered, closed)),
            fixed("closed_width", 4, widths / closed.max(1) as f64),
            fixed("mean_off", 4, off / found.max(1) as f64),
            fixed("mean_steps", 1, share(steps, trials)),
        ],
    }
}

/// Carries out one search; returns its points by rising rate.
fn searched(setting: SearchSetting, slo: &Slo, seed: u64) -> Vec<Point> {
    let search = Search {
        start_rps: 0.3 * TRUTH_RPS,
        lowest_rps: slo.lowest_rps,
        highest_rps: slo.highest_rps,
        resolution: slo.resolution,
        repeats: setting.repeats,
        samples: slo.objective.samples_needed(),
        window_s: setting.server.window_s(),
    };
    let mut rng = rng(seed);
    let mut points: Vec<Point> = Vec::new();
    // Figures of a rate alone are computed once, and not again for every rate that comes after it.
    let mut figures: BTreeMap<u64, Summary> = BTreeMap::new();
    let mut evidence: Vec<slo::RateEvidence> = Vec::new();
    for _ in 0..MAX_PROBES {
        let Some(probe) = search.next(&evidence) else { break };
        let measured = points.iter().position(|point| point.factors.offered_rps == probe.rps);
        let mut point = match measured {
            Some(index) => points.swap_remove(index),
            None => point_of(probe.rps, Vec::new()),
        };
        while point.repeats.len() < probe.repeats as usize {
            let factor = repeat_noise(&mut rng, setting.spread);
            let sent = setting.server.sample(&mut rng, probe.rps, factor);
            let index = point.repeats.len() as u32;
            point.repeats.push(repeat(index, setting.server.window_s(), &sent));
        }
        figures.insert(probe.rps.to_bits(), all_figures(&point, &Limits::default(), None));
        points.push(point);
        points.sort_by(|a, b| a.factors.offered_rps.total_cmp(&b.factors.offered_rps));
        for point in &mut points {
            point.summary = figures.get(&point.factors.offered_rps.to_bits()).cloned();
        }
        withhold(&mut points);
        evidence = points.iter().filter_map(|point| slo::evidence(point, slo)).collect();
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
        ..answered(index, &latencies, window_s, BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laws_of_the_servers_are_as_written() {
        for server in [SearchedServer::Slowing, SearchedServer::Queue] {
            for spread in [0.0, 0.1] {
                let mut rng = rng(3);
                let mut all: Vec<u64> = (0..400)
                    .flat_map(|_| {
                        let factor = repeat_noise(&mut rng, spread);
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
        assert!((SearchedServer::Queue.p99_us(200.0, 0.0) - 23_025.85).abs() < 1.0);
    }

    /// A much smaller version of the kept table.
    #[test]
    fn the_interval_of_a_highest_rate_contains_it() {
        let setting = SearchSetting {
            server: SearchedServer::Slowing,
            spread: 0.1,
            repeats: 3,
        };
        let of_slowing = row(setting, 12, 5);
        // Few rates of a search have enough samples for an interval of their p99, so most stay open.
        assert!(of_slowing.number("found") >= 11.0, "{of_slowing:?}");
        assert!(
            of_slowing.number("coverage") >= 0.75 && of_slowing.number("mean_off") < 0.15,
            "{of_slowing:?}"
        );
        let queue = SearchSetting {
            server: SearchedServer::Queue,
            ..setting
        };
        let [one, other] = [7, 7].map(|seed| row(queue, 1, seed));
        assert_eq!(one, other);
        assert_eq!(one.number("found"), 1.0);
    }
}
