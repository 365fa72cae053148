//! Power of `compare`, and its false alarms.
//!
//! Every trial is a pair of points of ten repeats of 2 s, with the same seeds, and so the same arrivals, in both; both go through the
//! schedule and warm-up of a plan and through `tierlab_analysis::curves::comparison`. Repeats differ by a factor of their own in each
//! run, as if the two had been made one after the other: by 2 % on a quiet machine.

use super::{point_of, repeat, served};
use crate::study::{exponential, margin, normal, repeat_noise, rng, seeds, share};
use crate::table::{Row, cell, fixed};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tierlab_analysis::curves::comparison::{Decision, WITHIN, decide};
use tierlab_analysis::curves::per_repeat::figures;
use tierlab_analysis::record::{Limits, Point, Verdict};
use tierlab_analysis::summarise;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::{Schedule, split_mix};

/// Text above the table.
pub(super) const ABOUT: &str = "# Comparisons

Pairs of points of ten repeats of 2 s with the same seeds, made one after the other, by the server, the requests in flight, how much
repeats differ (`spread`), and how much slower B's services are. A spread of 2 % is a quiet machine; in the run kept in
`results/quick-2core`, two shared cores, medians differ by 3.5 % at the steadiest points and by 7 % in the middle. With `p99 ten times`
2 % of B's requests take nearly ten times A's p99. `worse`: pairs that end with exit code 1. `better`: any figure is better and none
worse. `p50_equivalent`: the p50 is within 5 %. `p50_smallest`: mean of the smallest change of the p50 that the pairs could have found.
`valid`: pairs of which both points are; the others are undecided, or worse if B is saturated. In bold: more than 5 % called worse if
nothing changed; on a quiet machine less than 80 % if services take 10 % longer, 95 % if they take 20 %, all with the heavier tail (two
standard deviations of the simulation allowed).
";

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
enum Latencies {
    /// Lognormal (sigma 0.5), without a queue.
    Lognormal,
    /// Lognormal (sigma 0.25), of which so many percent take ten times as long, without a queue.
    Bimodal(u8),
    /// M/M/1 queue.
    Queue,
}

/// Difference of B from A.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Slower {
    /// Every service takes this share longer.
    By(f64),
    /// Two percent of the services take nearly ten times the p99.
    Tail,
}

/// Simulated pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ComparisonSetting {
    service: Latencies,
    /// Median service time in milliseconds; the mean of a queue's.
    service_ms: f64,
    rps: f64,
    spread: f64,
    slower: Slower,
}

/// Settings of the kept table.
pub(super) fn settings() -> Vec<ComparisonSetting> {
    let servers = [
        (Latencies::Lognormal, 1.0, 500.0, QUIET),
        (Latencies::Lognormal, 20.0, 300.0, QUIET),
        (Latencies::Lognormal, 100.0, 500.0, QUIET),
        (Latencies::Bimodal(2), 20.0, 300.0, QUIET),
        (Latencies::Queue, 7.0 / 3.0, 300.0, QUIET),
        (Latencies::Lognormal, 20.0, 300.0, 0.07),
    ];
    let by = [0.0, 0.1, 0.2].map(Slower::By);
    let mut settings = Vec::new();
    for (service, service_ms, rps, spread) in servers {
        let tail = (service == Latencies::Lognormal && spread == QUIET).then_some(Slower::Tail);
        settings.extend(by.into_iter().chain(tail).map(|slower| ComparisonSetting {
            service,
            service_ms,
            rps,
            spread,
            slower,
        }));
    }
    settings
}

impl ComparisonSetting {
    fn service(self) -> String {
        match self.service {
            Latencies::Lognormal => "lognormal".to_owned(),
            Latencies::Bimodal(percent) => format!("{percent} % ten times as long"),
            Latencies::Queue => format!("queue M/M/1 at {:.0} %", self.rps * self.service_ms / 10.0),
        }
    }

    fn slower(self) -> String {
        match self.slower {
            Slower::By(share) => format!("{:.0} %", 100.0 * share),
            Slower::Tail => "p99 ten times".to_owned(),
        }
    }

    /// True if as many pairs are called worse as promised. Nothing is promised of differences on a machine that is not quiet.
    fn holds(self, worse: f64, trials: usize) -> bool {
        let required_share = match self.slower {
            Slower::By(0.0) => return worse <= CALLED + margin(CALLED, trials),
            _ if self.spread > QUIET => return true,
            Slower::By(share) if share < 0.2 => 0.8,
            Slower::By(_) => 0.95,
            Slower::Tail => 1.0,
        };
        worse >= required_share - margin(required_share, trials)
    }
}

/// Simulates the pairs of a setting.
pub(super) fn row(setting: ComparisonSetting, trials: usize, seed: u64) -> Row {
    let (mut valid, mut worse, mut better, mut equivalent) = (0, 0, 0, 0);
    let (mut smallest, mut in_flight) = (0.0, 0.0);
    for seed in seeds(trials, seed) {
        let mut rng = rng(seed);
        let a = point(&mut rng, setting, Slower::By(0.0), seed);
        let b = point(&mut rng, setting, setting.slower, seed);
        in_flight += a.repeats[0].mean_in_flight;
        let verdicts = [&a, &b].map(|point| point.summary.as_ref().map(|summary| &summary.verdict));
        let [Some(Verdict::Valid), Some(Verdict::Valid)] = verdicts else {
            let is_b_saturated = matches!(verdicts, [Some(Verdict::Valid), Some(Verdict::Saturated(_))]);
            worse += usize::from(is_b_saturated);
            continue;
        };
        valid += 1;
        let decided = decide(&[figures(&a, &b, [None, None])], WITHIN, Limits::default().error_share).remove(0);
        let any = |decision| decided.iter().any(|one| one.decision == decision);
        worse += usize::from(any(Decision::Worse));
        better += usize::from(any(Decision::Better) && !any(Decision::Worse));
        equivalent += usize::from(decided[0].decision == Decision::Equivalent);
        smallest += decided[0].smallest.unwrap_or(f64::INFINITY);
    }
    Row {
        holds: setting.holds(share(worse, trials), trials),
        cells: vec![
            cell("service", setting.service()),
            fixed("service_ms", 3, setting.service_ms),
            cell("rps", setting.rps),
            fixed("in_flight", 2, in_flight / trials.max(1) as f64),
            cell("spread", setting.spread),
            cell("slower", setting.slower()),
            cell("trials", trials),
            cell("valid", valid),
            cell("worse", worse),
            cell("better", better),
            cell("p50_equivalent", equivalent),
            fixed("p50_smallest", 4, smallest / f64::from(valid.max(1))),
        ],
    }
}

/// One point. The arrivals of a repeat depend on `seed` and its index alone.
fn point(rng: &mut ChaCha8Rng, setting: ComparisonSetting, slower: Slower, seed: u64) -> Point {
    let repeats = (0..REPEATS)
        .map(|index| {
            let arrivals_seed = split_mix(seed ^ index as u64);
            let schedule = Schedule::new(&Arrivals::default(), setting.rps, WARMUP, WINDOW, arrivals_seed);
            let latencies = latencies(rng, &schedule, setting, slower);
            let mut repeat = repeat(index, &latencies, setting.rps);
            // A few replies more or fewer come in before a window's end.
            repeat.achieved_rps *= 1.0 + 0.001 * normal(rng);
            repeat
        })
        .collect();
    let mut point = [point_of(setting.rps, repeats)];
    summarise(&mut point, &Limits::default(), None);
    let [point] = point;
    point
}

/// Latencies of the requests in the window, in microseconds.
fn latencies(rng: &mut ChaCha8Rng, schedule: &Schedule, setting: ComparisonSetting, slower: Slower) -> Vec<f64> {
    let by = match slower {
        Slower::By(share) => 1.0 + share,
        Slower::Tail => 1.0,
    };
    let service_us = 1_000.0 * setting.service_ms * repeat_noise(rng, setting.spread) * by;
    let latency = |(due_us, done_us): (u64, f64)| schedule.in_window(due_us).then_some(done_us - due_us as f64);
    if setting.service == Latencies::Queue {
        let served = served(schedule, || service_us * exponential(rng));
        return served.filter_map(latency).collect();
    }
    // The p99 of a lognormal with sigma 0.5 is exp(2.326 * 0.5) medians.
    let tail = TAIL_TIMES * (0.5 * 2.326_f64).exp();
    let mut times = || match setting.service {
        Latencies::Bimodal(percent) => {
            let long = rng.random_bool(f64::from(percent) / 100.0);
            (if long { 10.0 } else { 1.0 }) * (0.25 * normal(rng)).exp()
        }
        _ if slower == Slower::Tail && rng.random_bool(TAIL) => tail,
        _ => (0.5 * normal(rng)).exp(),
    };
    let due = schedule.due_us.iter().map(|&due_us| (due_us, service_us * times()));
    due.filter_map(|(due_us, us)| schedule.in_window(due_us).then_some(us))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn differences_are_found_and_nothing_is_called_where_nothing_changed() {
        let quiet = settings().into_iter().filter(|setting| {
            let latencies = (setting.service, setting.service_ms);
            setting.spread == QUIET
                && [(Latencies::Lognormal, 20.0), (Latencies::Queue, 7.0 / 3.0)].contains(&latencies)
        });
        let rows: Vec<Row> = quiet.map(|setting| row(setting, 40, 5)).collect();
        assert_eq!(rows.len(), 7);
        for row in rows {
            assert!(row.holds, "{row:?}");
        }
    }
}
