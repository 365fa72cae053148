//! Simulated servers whose highest rate under the objective is known. In: a law of service, a rate, random numbers. Out: one
//! step as evidence. Independent of labs.
//!
//! Requests are served first come first served, one or two at a time, by a lab's schedule (the recursions of Lindley and of Kiefer and
//! Wolfowitz); a step starts with an idle server and warms up. A miss takes longer than the limit without holding the server.

use crate::study::{exponential, noise_quantiles, normal, rng};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use std::sync::OnceLock;
use std::time::Duration;
use tierlab_analysis::decision::StepEvidence;
use tierlab_analysis::record::Purpose;
use tierlab_analysis::statistics::bisect;
use tierlab_analysis::statistics::dependence::tail_autocorrelation_time;
use tierlab_analysis::statistics::student::t_two_sided;
use tierlab_load::arrivals::Arrivals;
use tierlab_load::schedule::Schedule;

/// Objective: p99 below so many seconds.
pub(super) const LIMIT_S: f64 = 0.040;
/// Allowed share of slow requests.
pub(super) const SLOW_SHARE: f64 = 0.01;
const WINDOW_S: f64 = 1.5;
const WARMUP_S: f64 = 0.2;
/// Without a queue: the capacity over the highest rate, the shape, and the normal's p99.
const SLOWING_CAPACITY: f64 = 1.6;
const SLOWING_SIGMA: f64 = 0.8;
const Z99: f64 = 2.326;
/// Blocks of a window that show whether the backlog grows.
const BLOCKS: usize = 10;
/// For the tables of laws without a formula: loads, and requests simulated at each.
const LOADS: usize = 24;
const LONG_RUN: usize = 1_000_000;
/// Share of long services of the hyperexponential law, and their mean; short ones have a mean of 1.
const LONG_SHARE: f64 = 0.1;
const LONG_FACTOR: f64 = 5.0;
/// Share of disturbed steps whose disturbance is not noticed.
const UNNOTICED: f64 = 0.2;

/// Law of service times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Service {
    Exponential,
    /// Lognormal with sigma 1.
    Lognormal,
    Deterministic,
    /// Exponential, a tenth of them five times as long.
    Hyperexponential,
    /// Exponential, by two servers with one queue.
    Two,
    /// Lognormal, without a queue: requests independent, slower with the rate.
    Slowing,
}

/// Laws whose highest rate is found by long simulations.
const TABULATED: [Service; 4] = [
    Service::Lognormal,
    Service::Deterministic,
    Service::Hyperexponential,
    Service::Two,
];

impl Service {
    const fn servers(self) -> f64 {
        if matches!(self, Self::Two) { 2.0 } else { 1.0 }
    }

    /// Draws a service time with mean 1.
    fn unit(self, rng: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Exponential | Self::Two | Self::Slowing => exponential(rng),
            Self::Deterministic => 1.0,
            Self::Hyperexponential => {
                let long = if rng.random_bool(LONG_SHARE) { LONG_FACTOR } else { 1.0 };
                exponential(rng) * long / (1.0 + LONG_SHARE * (LONG_FACTOR - 1.0))
            }
            Self::Lognormal => (normal(rng) - 0.5).exp(),
        }
    }
}

/// Times at which the servers are free again; infinite for a second that does not exist.
#[derive(Debug, Clone, Copy)]
struct FreeTimes([f64; 2]);

impl FreeTimes {
    fn new(service: Service) -> Self {
        Self([0.0, if service == Service::Two { 0.0 } else { f64::INFINITY }])
    }

    /// Serves a request that is due now; returns when it is done.
    fn serve(&mut self, now: f64, for_s: f64) -> f64 {
        let first = usize::from(self.0[1] < self.0[0]);
        self.0[first] = self.0[first].max(now) + for_s;
        self.0[first]
    }
}

/// Influence of the machine on steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Noise {
    /// Standard deviation of the logarithm of a step's own factor on service times.
    pub(super) spread: f64,
    /// Correlation of a step's factor with that of the one before, whatever was measured.
    pub(super) correlation: f64,
    /// Share of steps that something slows by a factor of three.
    pub(super) disturbed_share: f64,
    /// Factor of the last step, in standard deviations.
    pub(super) deviation: f64,
}

impl Noise {
    /// Draws the next step's factor.
    fn next_deviation(&mut self, rng: &mut ChaCha8Rng) -> f64 {
        let draw = normal(rng);
        self.deviation = self.correlation * self.deviation + (1.0 - self.correlation * self.correlation).sqrt() * draw;
        self.deviation
    }
}

/// Simulated server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Server {
    service: Service,
    /// Mean service time in seconds.
    mean_s: f64,
    /// Share of requests that miss.
    misses: f64,
}

impl Server {
    /// Server whose highest rate under the objective is this one.
    pub(super) fn with_highest(service: Service, misses: f64, highest_rps: f64) -> Self {
        let mean_s = match service {
            // P(sojourn > L) = exp(-(1/mean - rate) L).
            Service::Exponential => 1.0 / (highest_rps - slow_hits(misses).ln() / LIMIT_S),
            Service::Slowing => 1.0 / (SLOWING_CAPACITY * highest_rps),
            other => tabled_mean(other, highest_rps),
        };
        Self {
            service,
            mean_s,
            misses,
        }
    }

    /// Highest rate of the long run, if repeats differ and the typical one has `typical_rps`: the tail of a stay falls about
    /// exponentially with the capacity that is left, which is exact for M/M/1.
    pub(super) fn long_run_rps(&self, typical_rps: f64, spread: f64) -> f64 {
        if spread == 0.0 {
            return typical_rps;
        }
        let spare_rps = |rps: f64, factor: f64| self.service.servers() / (self.mean_s * factor) - rps;
        let allowed_share = slow_hits(self.misses);
        let decay = -allowed_share.ln() / spare_rps(typical_rps, 1.0);
        let factors = noise_quantiles(spread);
        let weights: f64 = factors.iter().map(|(_, weight)| weight).sum();
        let slow = |rps: f64| {
            let slow = |(factor, weight): &(f64, f64)| weight * (-decay * spare_rps(rps, *factor)).min(0.0).exp();
            factors.iter().map(slow).sum::<f64>() / weights
        };
        bisect((0.0, typical_rps), 40, |rps| slow(rps) <= allowed_share).0
    }

    /// Latencies of a step's window, in seconds, if service takes `factor` as long as usual.
    fn latencies(&self, rps: f64, factor: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let [warmup, window] = [WARMUP_S, WINDOW_S].map(Duration::from_secs_f64);
        let schedule = Schedule::new(&Arrivals::default(), rps, warmup, window, rng.random());
        let mut free = FreeTimes::new(self.service);
        let latency = |&due_us: &u64| {
            let now = due_us as f64 / 1e6;
            let done = if self.service == Service::Slowing {
                now + factor * self.slowing_s(rps, rng)
            } else {
                free.serve(now, factor * self.mean_s * self.service.unit(rng))
            };
            let miss = match self.misses > 0.0 && rng.random_bool(self.misses) {
                true => LIMIT_S * rng.random_range(1.2..2.0),
                false => 0.0,
            };
            schedule.in_window(due_us).then_some(done - now + miss)
        };
        schedule.due_us.iter().filter_map(latency).collect()
    }

    /// Latency without a queue: its p99 is the limit at the highest rate, and grows without bound towards the capacity.
    fn slowing_s(&self, rps: f64, rng: &mut ChaCha8Rng) -> f64 {
        let spare_share = (1.0 - rps * self.mean_s).max(1e-3);
        LIMIT_S * (1.0 - 1.0 / SLOWING_CAPACITY) / spare_share * (SLOWING_SIGMA * (normal(rng) - Z99)).exp()
    }

    /// Simulates a step.
    pub(super) fn step(&self, rps: f64, purpose: Purpose, noise: &mut Noise, rng: &mut ChaCha8Rng) -> StepEvidence {
        let deviation = noise.next_deviation(rng);
        let disturbed = noise.disturbed_share > 0.0 && rng.random_bool(noise.disturbed_share);
        let noticed = disturbed && !rng.random_bool(UNNOTICED);
        let factor = (noise.spread * deviation).exp() * if disturbed { 3.0 } else { 1.0 };
        let latencies = self.latencies(rps, factor, rng);
        let us: Vec<u64> = latencies.iter().map(|s| (s * 1e6) as u64).collect();
        let mut sorted = us.clone();
        sorted.sort_unstable();
        let rank = ((1.0 - SLOW_SHARE) * sorted.len() as f64).ceil() as usize;
        let quantile_us = sorted.get(rank.saturating_sub(1)).into_iter();
        StepEvidence {
            rps,
            purpose,
            requests: latencies.len() as f64,
            slow: vec![latencies.iter().filter(|s| **s > LIMIT_S).count() as f64],
            failed: 0.0,
            dependence: tail_autocorrelation_time(&us),
            usable: if noticed { Err("disturbed".to_owned()) } else { Ok(()) },
            saturated: is_growing(&latencies),
            tier_requests_per_inference: Some(1.0),
            tier_bytes_per_inference: Some(1_024.0),
            quantile_us: quantile_us.map(|us| *us as f64).collect(),
            block: 0,
        }
    }
}

/// Share of the hits that may be slow.
fn slow_hits(misses: f64) -> f64 {
    ((SLOW_SHARE - misses) / (1.0 - misses)).max(1e-4)
}

/// True if the latency certainly rises over the window, by more than half of its median: as a verdict sees it.
fn is_growing(latencies: &[f64]) -> bool {
    let size = latencies.len() / BLOCKS;
    if size < 2 {
        return false;
    }
    let blocks = latencies.chunks_exact(size).take(BLOCKS);
    let means: Vec<f64> = blocks.map(|block| block.iter().sum::<f64>() / size as f64).collect();
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let at = |index: usize| index as f64 - (count - 1.0) / 2.0;
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 { (0..means.len()).map(|index| of(at(index), means[index])).sum() };
    let spread = sum(&|x, _| x.powi(2));
    let slope = sum(&|x, y| x * y) / spread;
    let rest = sum(&|x, y| (y - mean - slope * x).powi(2));
    let error = (rest / (count - 2.0) / spread).sqrt();
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    slope > t_two_sided(0.05, count - 2.0) * error && slope * count > (0.5 * sorted[sorted.len() / 2]).max(0.001)
}

/// Mean service time with which a law has this highest rate, by long simulations of queues at rising loads: with a
/// mean of 1 and the load `x`, a percentile of `y` means that the limit is met up to `x / mean` with `mean = limit / y`.
fn tabled_mean(service: Service, highest_rps: f64) -> f64 {
    static TABLES: OnceLock<Vec<Vec<(f64, f64)>>> = OnceLock::new();
    let tables = TABLES.get_or_init(|| TABULATED.iter().map(|service| loads(*service)).collect());
    let index = TABULATED.iter().position(|one| *one == service).unwrap_or(0);
    let table = &tables[index];
    // The highest rate rises with the load.
    let rate = |&(load, percentile): &(f64, f64)| load * percentile / LIMIT_S;
    let above = table.iter().position(|entry| rate(entry) >= highest_rps);
    let above = above.unwrap_or(table.len() - 1).max(1);
    let (low, high) = (&table[above - 1], &table[above]);
    let share = ((highest_rps - rate(low)) / (rate(high) - rate(low))).clamp(0.0, 1.0);
    let load = low.0 + share * (high.0 - low.0);
    load / highest_rps
}

/// Loads with the percentile of each, in mean service times.
fn loads(service: Service) -> Vec<(f64, f64)> {
    let load = |index: usize| service.servers() * 0.97 * (index as f64 + 1.0) / LOADS as f64;
    let of = |index| (load(index), simulated_percentile(service, load(index), index as u64));
    (0..LOADS).map(of).collect()
}

fn simulated_percentile(service: Service, load: f64, seed: u64) -> f64 {
    let mut rng = rng(0x6c6f_676e ^ seed);
    let (mut now, mut free) = (0.0, FreeTimes::new(service));
    let mut sojourn_times: Vec<f64> = (0..LONG_RUN)
        .map(|_| {
            now += exponential(&mut rng) / load;
            free.serve(now, service.unit(&mut rng)) - now
        })
        .collect();
    let rank = ((1.0 - SLOW_SHARE) * LONG_RUN as f64) as usize;
    *sojourn_times.select_nth_unstable_by(rank, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a formula and by a long simulation.
    #[test]
    fn the_highest_rate_is_where_the_objective_breaks() {
        let services = TABULATED.into_iter().chain([Service::Exponential]);
        for service in services {
            let server = Server::with_highest(service, 0.0, 200.0);
            let load = 200.0 * server.mean_s;
            let us = 1e6 * server.mean_s * simulated_percentile(service, load, 99);
            assert!((us / (1e6 * LIMIT_S) - 1.0).abs() < 0.06, "{service:?}: {us}");
        }
    }

    /// Also in short steps: with the number of arrivals fixed it would be 0.75 %.
    #[test]
    fn the_mean_share_of_slow_requests_in_steps_is_that_of_the_long_run() {
        let server = Server::with_highest(Service::Exponential, 0.0, 300.0);
        let mut rng = rng(7);
        let steps = (0..3_000).map(|_| server.step(300.0, Purpose::Explore, &mut Noise::default(), &mut rng));
        let (slow, all) = steps.fold((0.0, 0.0), |(slow, all), step| {
            (slow + step.slow[0], all + step.requests)
        });
        assert!((0.009..0.011).contains(&(slow / all)), "{}", slow / all);
    }

    #[test]
    fn weather_lasts_as_long_as_it_should() {
        let mut rng = rng(5);
        let mut noise = Noise {
            correlation: 0.8,
            ..Noise::default()
        };
        let pushes: Vec<f64> = (0..20_000).map(|_| noise.next_deviation(&mut rng)).collect();
        let product = |lag: usize| pushes.iter().zip(&pushes[lag..]).map(|(a, b)| a * b).sum::<f64>();
        assert!((product(1) / product(0) - 0.8).abs() < 0.03);
        assert!((product(0) / pushes.len() as f64 - 1.0).abs() < 0.1);
    }
}
