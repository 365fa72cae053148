//! Likelihood of steps' counts, over the mean share of slow requests and the spread of the repeats.
//!
//! In: requests, slow requests and their dependence, for each step. Out: a table of logarithms. Knows nothing of rates,
//! variants or costs.
//!
//! Each repeat has a random effect that moves all of its requests: the log odds of being slow are normal about a
//! centre, with a standard deviation of `σ`. `θ` is the log odds of the mean share over all possible repeats. It lies
//! above the centre, because a few bad repeats dominate the mean. Given the odds of a repeat, slow requests come in
//! bursts: at random, short or long, with geometric lengths. Their mean length is the dependence of all steps around
//! the rate, because a step without a burst shows none. Single slow requests (misses of a cache, for example) come one
//! by one and in every repeat alike; neither bursts nor the effect of a repeat move them. A small share of all steps is
//! disturbed without being noticed. Such a step may show anything, so that no single step is certain evidence.

use crate::statistics::bisect;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Standard deviations of the effect of a repeat, in log odds.
pub(crate) const SIGMAS: [f64; 4] = [0.3, 0.8, 1.6, 3.2];
/// Prior probability of each `σ`.
pub(crate) const SIGMA_PRIOR: [f64; 4] = [0.7, 0.17, 0.09, 0.04];
/// Shares of single slow requests, relative to the limit, and their probabilities.
pub(crate) const SINGLES: [f64; 3] = [0.0, 0.4, 0.75];
const SINGLES_PRIOR: [f64; SINGLES.len()] = [0.84, 0.08, 0.08];
/// Step between log odds.
pub(crate) const ODDS_STEP: f64 = 0.5;
/// Steps on either side of the limit, for the mean share.
pub(crate) const THETA_SIDE: usize = 16;
/// Steps on either side of the limit, for a single repeat.
const ODDS_SIDE: usize = 28;
/// Number of log odds of the mean share.
pub(crate) const THETAS: usize = 2 * THETA_SIDE + 1;
/// Number of log odds of a single repeat, without single slow requests; rounded up to a multiple of [`LANES`], the last
/// entries have no probability.
const ODDS: usize = (2 * ODDS_SIDE + 1).next_multiple_of(LANES);
/// Halvings in the search for the centre of a repeat's log odds.
const CENTRE_HALVINGS: usize = 24;
/// Products summed side by side.
const LANES: usize = 4;
/// Probability of log odds below which they are left out.
const NEGLIGIBLE: f64 = 1e-18;
/// Share of steps that were disturbed without being noticed.
const DISTURBED_SHARE: f64 = 0.02;
/// Mean lengths of short and long bursts, relative to that of all; half of the slow requests are in each. This fits the
/// counts of an M/M/1 queue from 0 to 40 slow requests, whose bursts vary more than geometric ones (Aldous,
/// *Probability Approximations via the Poisson Clumping Heuristic*, 1989).
const LENGTHS: [f64; 2] = [2.0 / 3.0, 2.0];
/// Share of slow requests above which bursts cannot be told apart; requests then count by their dependence.
const BURST_LIMIT: f64 = 0.2;
/// Rise of a burst's length over the dependence with the share of slow requests, because bursts then merge.
const MERGE_RATE: f64 = 10.0;
/// Maximum of that rise.
const MAX_MERGED: f64 = 4.0;
/// Maximum effective number of slow requests in a step; more would make the likelihood fall between [`ODDS_STEP`]s.
const MAX_EFFECTIVE_SLOW: f64 = 8.0;
/// Number of slow requests above which counts are scaled down.
const MAX_COUNTED: f64 = 40.0;
/// Maximum effective requests of a server that could not keep up, because all of its requests carry the same evidence.
const SATURATED_COUNT: f64 = 50.0;

/// Log likelihood of steps over the single slow requests, `σ` and `θ`, the log odds less the log odds of the limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Likelihood(Box<[[[f64; THETAS]; SIGMAS.len()]; SINGLES.len()]>);

/// Counts of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StepCounts {
    /// Requests in the step.
    pub(crate) requests: f64,
    /// Slow requests among them.
    pub(crate) slow: f64,
    /// Requests per independent observation.
    pub(crate) dependence: f64,
    /// True if the server could not keep up: more than the allowed share is slow, and in a longer step all would be.
    pub(crate) saturated: bool,
}

impl StepCounts {
    /// Returns the likelihood at each log odds beside a share of single slow requests, and the effective requests and slow
    /// requests.
    fn likelihoods(self, odds: impl Fn(usize) -> f64, single: f64, limit: f64) -> ([f64; ODDS], f64, f64) {
        let dependence = self.dependence.max(1.0);
        let share = (self.slow / self.requests.max(1e-9)).clamp(0.0, 1.0);
        // A growing backlog with few slow requests may be a burst at the window's end.
        let saturated = self.saturated && share > limit.max(BURST_LIMIT);
        if !saturated && share < BURST_LIMIT {
            let of = |odds: f64| {
                let share = 1.0 / (1.0 + (-odds).exp());
                let merged = (1.0 + MERGE_RATE * share).min(MAX_MERGED);
                self.in_bursts(share, single, 1.0 + (dependence - 1.0) * merged)
            };
            return (std::array::from_fn(|index| of(odds(index))), self.requests, self.slow);
        }
        let count = (self.requests / dependence).min(MAX_EFFECTIVE_SLOW / (share * (1.0 - share)).max(1e-9));
        let (count, slow) = match saturated {
            true => (count.clamp(1.0, SATURATED_COUNT), count.clamp(1.0, SATURATED_COUNT)),
            false => (count, count * share),
        };
        let log_binomial = libm::lgamma(count + 1.0) - libm::lgamma(slow + 1.0) - libm::lgamma(count - slow + 1.0);
        let of = |odds: f64| {
            // ln p and ln (1 - p) without losing the smaller value.
            let (p, q) = (-(-odds).exp().ln_1p(), -odds.exp().ln_1p());
            (log_binomial + slow * p + (count - slow) * q).exp()
        };
        (std::array::from_fn(|index| of(odds(index))), count, slow)
    }

    /// Returns the probability of this many slow requests: some of them one by one at the share `single`, the others at
    /// the share `share` in random bursts of geometric lengths. The sum is compound Poisson: Panjer's recursion, in which
    /// the sum over the lengths of bursts is carried from count to count.
    fn in_bursts(self, share: f64, single: f64, dependence: f64) -> f64 {
        // Large counts are scaled down.
        let coarse = (MAX_COUNTED / self.slow.max(1.0)).min(1.0);
        let length = dependence.max(self.slow / MAX_EFFECTIVE_SLOW);
        let (slow, requests) = ((self.slow * coarse).round() as usize, self.requests * coarse);
        // Expected number of bursts, and the share of slow requests that another one of the same burst follows.
        let bursts = LENGTHS.map(|of_mean| {
            let mean = (of_mean * length * coarse).max(1.0);
            (requests * share / (LENGTHS.len() as f64 * mean), 1.0 - 1.0 / mean)
        });
        let events = bursts.iter().fold(requests * single, |sum, (bursts, _)| sum + bursts);
        let mut probability = (-events).exp();
        // Probabilities of the lower counts, weighted by the length of the burst that is missing and once more by it.
        let mut sums = [(0.0, 0.0); LENGTHS.len()];
        for count in 1..=slow {
            let mut sum = requests * single * probability;
            for ((once, twice), (bursts, longer)) in sums.iter_mut().zip(bursts) {
                *once = probability + longer * *once;
                *twice = *once + longer * *twice;
                sum += bursts * (1.0 - longer) * *twice;
            }
            probability = sum / count as f64;
        }
        probability
    }
}

impl Likelihood {
    /// Returns the likelihood before any step.
    pub(crate) fn empty() -> Self {
        Self(Box::new([[[0.0; THETAS]; SIGMAS.len()]; SINGLES.len()]))
    }

    /// Adds a step; `limit` is the allowed share of slow requests, above 0 and below 1.
    pub(crate) fn add(&mut self, counts: StepCounts, limit: f64) {
        if counts.requests <= 0.0 {
            return;
        }
        let of_limit = (limit / (1.0 - limit)).ln();
        let odds = |index: usize| of_limit + (index as f64 - ODDS_SIDE as f64) * ODDS_STEP;
        let kernels = Kernels::of(limit);
        for ((logs, kernels), single) in self.0.iter_mut().zip(&kernels.0).zip(SINGLES) {
            let (likelihoods, count, slow) = counts.likelihoods(odds, single * limit, limit);
            let any = 1.0 / (count + 1.0);
            // In half of the disturbed steps nearly all requests are slow.
            let most = match slow > 0.8 * count {
                true => 1.0 / (0.2 * count + 1.0),
                false => 0.0,
            };
            let disturbed = DISTURBED_SHARE * 0.5 * (any + most);
            for (logs, kernels) in logs.iter_mut().zip(kernels) {
                for (log, kernel) in logs.iter_mut().zip(kernels) {
                    let share = dot(&kernel.weights, &likelihoods[kernel.first..]);
                    *log += ((1.0 - DISTURBED_SHARE) * share + disturbed).ln();
                }
            }
        }
    }

    /// Log likelihoods over `θ`, for one share of single slow requests and one `σ`, by their indices.
    pub(crate) fn row(&self, singles: usize, sigma: usize) -> &[f64; THETAS] {
        &self.0[singles][sigma]
    }

    /// Returns the mean log odds by likelihood, relative to the limit; below 0 the objective looks met.
    pub(crate) fn position(&self) -> f64 {
        let theta = |index: usize| (index as f64 - THETA_SIDE as f64) * ODDS_STEP;
        let over = || {
            let singles = SINGLES.into_iter().zip(SINGLES_PRIOR).zip(self.0.iter());
            singles.flat_map(move |((single, of_single), by_sigma)| {
                by_sigma.iter().zip(SIGMA_PRIOR).flat_map(move |(logs, of_sigma)| {
                    let prior = (of_single * of_sigma).ln();
                    let logs = logs.iter().enumerate();
                    let logs = logs.map(move |(index, log)| (prior + log, theta(index)));
                    logs.filter(move |(_, theta)| theta.exp() > single)
                })
            })
        };
        let greatest = over().map(|(log, _)| log).fold(f64::NEG_INFINITY, f64::max);
        let (mut all, mut sum) = (0.0, 0.0);
        for (log, theta) in over() {
            let weight = (log - greatest).exp();
            all += weight;
            sum += weight * theta;
        }
        sum / all
    }
}

/// Probability of a repeat's log odds without single slow requests, by the share of these, `σ` and `θ`; `θ = 0` is a mean
/// share of all slow requests of `limit`.
struct Kernels([[Vec<Kernel>; SIGMAS.len()]; SINGLES.len()]);

/// Probabilities of a repeat's log odds, from the first that is not negligible to the last.
struct Kernel {
    /// Index of the first log odds.
    first: usize,
    weights: Vec<f64>,
}

impl Kernel {
    fn of(weights: [f64; ODDS]) -> Self {
        let is_relevant = |weight: &f64| *weight > NEGLIGIBLE;
        let first = weights.iter().position(is_relevant).unwrap_or(0) / LANES * LANES;
        let last = weights.iter().rposition(is_relevant);
        let end = last.map_or(ODDS, |last| (last + 1).next_multiple_of(LANES));
        let weights = weights[first..end].to_vec();
        Self { first, weights }
    }
}

impl Kernels {
    /// Returns the kernels of a limit, computed once per limit.
    fn of(limit: f64) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<u64, Arc<Kernels>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(limit.to_bits()).or_insert_with(|| Arc::new(Self::new(limit))))
    }

    fn new(limit: f64) -> Self {
        let of_limit = (limit / (1.0 - limit)).ln();
        let share = |odds: f64| 1.0 / (1.0 + (-of_limit - odds).exp());
        let shares: [f64; ODDS] = std::array::from_fn(|index| share(odds_at(index)));
        Self(SINGLES.map(|single| {
            let rest = |theta: usize| (share((theta as f64 - THETA_SIDE as f64) * ODDS_STEP) - single * limit).max(0.0);
            SIGMAS.map(|sigma| {
                let row = |theta: usize| Kernel::of(weights_with_mean(sigma, rest(theta), &shares));
                (0..THETAS).map(row).collect()
            })
        }))
    }
}

/// Returns the log odds of a single repeat at an index, relative to the limit.
fn odds_at(index: usize) -> f64 {
    (index as f64 - ODDS_SIDE as f64) * ODDS_STEP
}

/// Returns normal weights of log odds with a standard deviation of `sigma`, centred so that the mean share is `mean`:
/// the long-run share, in which a few bad repeats may dominate.
fn weights_with_mean(sigma: f64, mean: f64, shares: &[f64; ODDS]) -> [f64; ODDS] {
    let weights = |centre: f64| {
        let weights: [f64; ODDS] = std::array::from_fn(|index| {
            let z = (odds_at(index) - centre) / sigma;
            let is_odds = index <= 2 * ODDS_SIDE;
            if is_odds { (-0.5 * z * z).exp() } else { 0.0 }
        });
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    };
    let span = ODDS_SIDE as f64 * ODDS_STEP;
    let is_below = |centre: f64| dot(&weights(centre), shares) <= mean;
    let (low, high) = bisect((-span - sigma, span + sigma), CENTRE_HALVINGS, is_below);
    weights(f64::midpoint(low, high))
}

/// Sums in lanes, so that the compiler may add several at once.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[StepCounts]) -> Likelihood {
        let mut likelihood = Likelihood::empty();
        for step in steps {
            likelihood.add(*step, 0.01);
        }
        likelihood
    }

    fn step(slow: f64) -> StepCounts {
        StepCounts {
            requests: 1_000.0,
            slow,
            dependence: 1.0,
            saturated: false,
        }
    }

    /// Returns the log likelihood ratio between the limit's odds and odds `steps` above it, for a small spread of
    /// repeats.
    fn below(likelihood: &Likelihood, steps: usize) -> f64 {
        likelihood.row(0, 0)[THETA_SIDE - steps] - likelihood.row(0, 0)[THETA_SIDE + steps]
    }

    #[test]
    fn clean_steps_speak_for_fewer_slow_ones_and_bad_ones_for_more() {
        assert!(below(&of(&[]), 2).abs() < 1e-12);
        let (one, two) = (of(&[step(0.0)]), of(&[step(0.0); 2]));
        assert!(below(&one, 2) > 2.0 && below(&two, 2) > 1.9 * below(&one, 2));
        assert!(one.position() < -2.0 && of(&[step(100.0)]).position() > 1.0);
        assert!(below(&of(&[step(27.0)]), 2) < -2.0);
        // A single clean step among bad ones may be an unnoticed disturbance, and the reverse.
        assert!(below(&of(&[step(1_000.0)]), 8) > -6.0);
    }

    #[test]
    fn the_counts_of_bursts_add_up_to_one_and_to_the_expected_number() {
        let of = |slow: usize| step(slow as f64).in_bursts(0.001, 0.002, 5.0);
        let all: f64 = (0..=40).map(of).sum();
        let mean: f64 = (0..=40).map(|slow| slow as f64 * of(slow)).sum();
        assert!(
            (0.998..1.0).contains(&all) && (2.94..3.0).contains(&mean),
            "{all} {mean}"
        );
        let none = step(0.0).in_bursts(0.001, 0.002, 1.0);
        assert!((none - (-2.75_f64).exp()).abs() < 1e-12, "{none}");
    }

    /// Half of the allowed share, never more than a few in a step: as bursts, they would be too many.
    #[test]
    fn single_slow_requests_are_not_taken_for_bursts() {
        let steps = |slow: [f64; 10]| {
            slow.map(|slow| StepCounts {
                requests: 440.0,
                dependence: 10.0,
                ..step(slow)
            })
        };
        let single = of(&steps([2.0, 3.0, 2.0, 1.0, 2.0, 4.0, 1.0, 2.0, 3.0, 2.0]));
        let in_bursts = of(&steps([0.0, 0.0, 0.0, 22.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
        let best = |likelihood: &Likelihood, singles: usize| {
            likelihood
                .row(singles, 0)
                .iter()
                .copied()
                .fold(f64::NEG_INFINITY, f64::max)
        };
        assert!(best(&single, 1) > best(&single, 0) + 3.0 && best(&in_bursts, 0) > best(&in_bursts, 1) + 1.0);
        assert!(single.position() < 0.0, "{}", single.position());
    }

    #[test]
    fn dependent_requests_count_less_and_a_growing_backlog_at_most_as_so_many() {
        let dependent = StepCounts {
            dependence: 20.0,
            ..step(0.0)
        };
        assert!(below(&of(&[dependent]), 2) < 0.6 * below(&of(&[step(0.0)]), 2));
        let saturated = StepCounts {
            saturated: true,
            ..step(300.0)
        };
        assert!(of(&[saturated]).position() > 4.0);
        // A backlog that grows without slow requests does not count.
        let short = StepCounts {
            saturated: true,
            ..step(0.0)
        };
        assert_eq!(of(&[short]), of(&[step(0.0)]));
    }
}
