//! How far steps speak for or against an objective, at whatever time one looks.
//!
//! In: of each step how many requests it had, how many were slow, and how much they depend on each other. Out: two e-values, as
//! logarithms: for "fewer are slow than may be" and for "more are". Knows nothing of rates, variants or costs.
//!
//! A repeat has weather of its own, which moves all of its requests: the log odds of being slow are `θ + σ z` with a standard
//! normal `z` of each step, and a step's count is binomial given those. Counts are deflated by the dependence within the step, so
//! that `n / d` of its requests count. A small share of all steps is disturbed without anybody having seen it: such a step may
//! show anything, so that no single step is certain of anything.
//!
//! The e-value against "at least as many are slow as may be" is the likelihood of all steps, mixed over smaller `θ` and over `σ`, divided by
//! the largest likelihood that the hypothesis gives them, over `θ` and over `σ` (universal inference: Wasserman, Ramdas, Balakrishnan,
//! PNAS 117, 2020). Where the hypothesis is true its mean is at most 1 after every number of steps, so that by Ville's inequality the
//! chance that it *ever* exceeds `1/α` is at most `α`: a confidence sequence by the method of mixtures (Robbins, Annals of Mathematical
//! Statistics 41, 1970; Howard, Ramdas, McAuliffe, Sekhon, Annals of Statistics 49, 2021; Waudby-Smith, Ramdas, JRSS B 86, 2024).
//!
//! `σ` is not known, and few steps of one rate say little of it: they are helped by the steps of the other rates and variants, at less
//! than their weight, for weather need not be the same everywhere; before there are any, wide ones are likely enough that it takes
//! about ten steps, each better than it must be, to be certain.

use std::ops::Range;
use std::sync::OnceLock;

/// Standard deviations of a repeat's weather, in log odds.
const SIGMAS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// How likely each is before anything was seen.
const PRIOR: [f64; 5] = [0.25, 0.3, 0.25, 0.15, 0.05];
/// The index in [`THETAS`] of the limit for each, for what must be shown to be met. The mean share of slow requests is above that of the
/// typical repeat, by `σ² / 2` in log odds where few are slow. Queues have bursts that one repeat meets and the next does not, which
/// count as weather of about 1: that much is the server's. What lies beyond is taken for the machine's, in the main.
const MET: [usize; 5] = [13, 12, 11, 9, 9];
/// The same for what must be shown not to be met: by the mean share up to `σ` of 2. A queue that is a fifth too full has repeats
/// without any slow request, and others in which half are.
const NOT_MET: [usize; 5] = [13, 12, 11, 7, 7];
/// How much the steps of other rates say of this one's weather.
const POOLED: f64 = 0.5;
/// Log odds of a typical repeat, from those of the limit. Zero is the limit.
const THETAS: [f64; 27] = [
    -10.0, -8.0, -6.0, -5.0, -4.0, -3.0, -2.5, -2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5,
    2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0,
];
/// Log odds of one repeat: so many steps of [`FINE`] to either side of the limit.
const SIDE: usize = 28;
const FINE: f64 = 0.5;
/// A whole number of [`LANES`]; the last ones are never likely.
const ODDS: usize = (2 * SIDE + 1).next_multiple_of(LANES);
/// Products summed side by side.
const LANES: usize = 4;
/// The share of steps that were disturbed unseen.
const DISTURBED: f64 = 0.03;
/// Of a server that could not keep up so many requests count, however many were sent: all of them say the same.
const SATURATED_COUNT: f64 = 50.0;

/// The logarithm of the likelihood of some steps over `σ` and `θ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Likelihood {
    steps: u32,
    logs: Box<[[f64; THETAS.len()]; SIGMAS.len()]>,
}

/// Counts of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// Requests.
    pub requests: f64,
    /// Of these, slow.
    pub slow: f64,
    /// How many say as much as an independent one.
    pub dependence: f64,
    /// Whether the server could not keep up: more than may be are slow then, and in a longer step all would be.
    pub saturated: bool,
}

impl Counts {
    /// Requests that count, and slow ones among them.
    fn deflated(self, limit: f64) -> (f64, f64) {
        let count = self.requests / self.dependence.max(1.0);
        let share = (self.slow / self.requests.max(1e-9)).clamp(0.0, 1.0);
        // A backlog that grows below the limit may be a burst at the window's end.
        if self.saturated && share > limit {
            let count = count.clamp(1.0, SATURATED_COUNT);
            return (count, count);
        }
        (count, count * share)
    }
}

/// What the steps of one place say, in natural logarithms, and where a typical repeat lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// For fewer slow requests than may be.
    pub met: f64,
    /// For more.
    pub not_met: f64,
    /// The likely log odds less those of the limit: below 0 the objective looks met.
    pub position: f64,
}

/// How likely each weather is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather([f64; SIGMAS.len()]);

impl Likelihood {
    /// Of no steps.
    #[must_use]
    pub fn none() -> Self {
        Self {
            steps: 0,
            logs: Box::new([[0.0; THETAS.len()]; SIGMAS.len()]),
        }
    }

    /// Adds a step; `limit` is the share of slow requests that may be, above 0 and below 1.
    pub fn add(&mut self, counts: Counts, limit: f64) {
        let (count, slow) = counts.deflated(limit);
        if count <= 0.0 {
            return;
        }
        self.steps += 1;
        let limit = (limit / (1.0 - limit)).ln();
        let ways = libm::lgamma(count + 1.0) - libm::lgamma(slow + 1.0) - libm::lgamma(count - slow + 1.0);
        let given: [f64; ODDS] = std::array::from_fn(|index| {
            let odds = limit + (index as f64 - SIDE as f64) * FINE;
            // ln p and ln (1 - p) without losing the small one.
            let (p, q) = (-(-odds).exp().ln_1p(), -odds.exp().ln_1p());
            (ways + slow * p + (count - slow) * q).exp()
        });
        let any = 1.0 / (count + 1.0);
        // Half of the disturbed ones have nearly all slow.
        let most = if slow > 0.8 * count {
            1.0 / (0.2 * count + 1.0)
        } else {
            0.0
        };
        let disturbed = DISTURBED * 0.5 * (any + most);
        for (logs, kernels) in self.logs.iter_mut().zip(kernels()) {
            for (log, kernel) in logs.iter_mut().zip(kernel_rows(kernels)) {
                *log += ((1.0 - DISTURBED) * dot(kernel, &given) + disturbed).ln();
            }
        }
    }

    /// Adds the steps of another place, as if they were of this one.
    pub fn join(&mut self, other: &Self) {
        self.steps += other.steps;
        for (logs, others) in self.logs.iter_mut().zip(other.logs.iter()) {
            for (log, other) in logs.iter_mut().zip(others) {
                *log += other;
            }
        }
    }

    /// Adds what these steps say of the weather.
    pub fn tell(&self, weather: &mut Weather) {
        self.weigh(weather, POOLED);
    }

    /// Takes it out again.
    #[must_use]
    pub fn without(&self, weather: &Weather) -> Weather {
        let mut others = *weather;
        self.weigh(&mut others, -POOLED);
        others
    }

    fn weigh(&self, weather: &mut Weather, times: f64) {
        // One step says nothing of how steps differ that is not a guess about where they lie.
        if self.steps < 2 {
            return;
        }
        for (weight, logs) in weather.0.iter_mut().zip(self.logs.iter()) {
            *weight += times * mean_exp(logs);
        }
    }

    /// What these steps say, where weather is as `others` say.
    #[must_use]
    pub fn evidence(&self, others: &Weather) -> Evidence {
        let (met, not_met) = self.sides(others);
        Evidence {
            met,
            not_met,
            position: self.position(&others.weights()),
        }
    }

    /// For and against alone, which is quicker.
    #[must_use]
    pub fn sides(&self, others: &Weather) -> (f64, f64) {
        let weights = others.weights();
        let sum: f64 = weights.iter().map(|weight| weight.exp()).sum::<f64>().ln();
        let mixed = |limits: [usize; 5], thetas: fn(usize) -> Range<usize>| {
            let over: [f64; SIGMAS.len()] =
                std::array::from_fn(|sigma| weights[sigma] - sum + mean_exp(&self.logs[sigma][thetas(limits[sigma])]));
            sum_exp(&over)
        };
        let largest = |limits: [usize; 5], thetas: fn(usize) -> Range<usize>| {
            let over = self
                .logs
                .iter()
                .zip(weights)
                .zip(limits)
                .map(|((logs, weight), limit)| {
                    weight + logs[thetas(limit)].iter().copied().fold(f64::NEG_INFINITY, f64::max)
                });
            over.fold(f64::NEG_INFINITY, f64::max)
        };
        (
            mixed(MET, |limit| 0..limit) - largest(MET, |limit| limit..THETAS.len()),
            mixed(NOT_MET, |limit| limit + 1..THETAS.len()) - largest(NOT_MET, |limit| 0..limit + 1),
        )
    }

    /// The mean log odds by likelihood, from the limit of each weather.
    fn position(&self, weights: &[f64; SIGMAS.len()]) -> f64 {
        let over = || {
            self.logs
                .iter()
                .zip(weights)
                .zip(MET)
                .flat_map(|((logs, weight), limit)| {
                    logs.iter()
                        .zip(THETAS)
                        .map(move |(log, theta)| (weight + log, theta - THETAS[limit]))
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

impl Weather {
    /// From the likeliest.
    fn weights(&self) -> [f64; SIGMAS.len()] {
        let greatest = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.0.map(|weight| weight - greatest)
    }
}

impl Default for Weather {
    fn default() -> Self {
        Self(PRIOR.map(f64::ln))
    }
}

/// `σ` by `θ` by the log odds of one repeat: how likely they are.
fn kernels() -> &'static [Vec<f64>] {
    static KERNELS: OnceLock<Vec<Vec<f64>>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let rows = |sigma: f64| {
            let row = move |theta: f64| {
                let weights: Vec<f64> = (0..ODDS)
                    .map(|index| {
                        let z = ((index as f64 - SIDE as f64) * FINE - theta) / sigma;
                        if index <= 2 * SIDE { (-0.5 * z * z).exp() } else { 0.0 }
                    })
                    .collect();
                let sum: f64 = weights.iter().sum();
                weights.into_iter().map(move |weight| weight / sum)
            };
            THETAS.iter().flat_map(|theta| row(*theta)).collect()
        };
        SIGMAS.iter().map(|sigma| rows(*sigma)).collect()
    })
}

fn kernel_rows(kernels: &[f64]) -> std::slice::ChunksExact<'_, f64> {
    kernels.chunks_exact(ODDS)
}

/// Summed in lanes, so that the compiler may add several at once.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

/// `ln Σ exp`.
fn sum_exp(logs: &[f64]) -> f64 {
    let greatest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    greatest + logs.iter().map(|log| (log - greatest).exp()).sum::<f64>().ln()
}

/// `ln` of the mean of `exp`.
pub(super) fn mean_exp(logs: &[f64]) -> f64 {
    sum_exp(logs) - (logs.len() as f64).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Binomial, Distribution, StandardNormal};

    fn step(requests: f64, slow: f64) -> Counts {
        Counts {
            requests,
            slow,
            dependence: 1.0,
            saturated: false,
        }
    }

    fn of(steps: &[Counts]) -> Evidence {
        let mut likelihood = Likelihood::none();
        for step in steps {
            likelihood.add(*step, 0.01);
        }
        likelihood.evidence(&Weather::default())
    }

    /// In repeats that lie on the wrong side by nothing, or by a little: looked at after each of 25 steps.
    #[test]
    fn false_certainty_is_rare_at_every_look() {
        let certain = 20.0_f64.ln();
        for (sigma, typical) in [(0.0, 0.01), (0.5, 0.01), (1.0, 0.0065)] {
            let (mut met, mut not_met) = (0, 0);
            for seed in 0..200 {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut likelihood = Likelihood::none();
                let mut ever = [false; 2];
                for _ in 0..25 {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    let odds: f64 = (typical / (1.0_f64 - typical)).ln() + sigma * z;
                    let slow = Binomial::new(500, 1.0 / (1.0 + (-odds).exp()))
                        .unwrap()
                        .sample(&mut rng);
                    likelihood.add(step(500.0, slow as f64), 0.01);
                    let evidence = likelihood.evidence(&Weather::default());
                    ever[0] |= evidence.met >= certain;
                    ever[1] |= evidence.not_met >= certain;
                }
                met += usize::from(ever[0]);
                not_met += usize::from(ever[1]);
            }
            // A twentieth, and two standard deviations of the simulation.
            assert!(met <= 16 && not_met <= 16, "{sigma}: {met} {not_met} of 200");
        }
    }

    #[test]
    fn nothing_says_nothing_and_clean_steps_say_more_and_more() {
        let none = of(&[]);
        assert!(none.met.abs() < 1e-9 && none.not_met.abs() < 1e-9);
        let clean = |steps: usize| of(&vec![step(1_000.0, 0.0); steps]);
        assert!(clean(1).met > 0.0 && clean(4).met > clean(2).met && clean(2).met > clean(1).met);
        assert!(clean(10).met > 150.0_f64.ln(), "{:?}", clean(10));
        assert!(clean(4).position < -2.0 && clean(4).not_met < 0.0);
        let bad = of(&[step(1_000.0, 100.0); 4]);
        assert!(
            bad.not_met > 20.0_f64.ln() && bad.position > 1.0 && bad.met < 0.0,
            "{bad:?}"
        );
    }

    #[test]
    fn one_step_is_certain_of_nothing_and_dependent_requests_count_less() {
        let all_slow = Counts {
            saturated: true,
            ..step(5_000.0, 5_000.0)
        };
        let (one, two) = (of(&[all_slow]), of(&[all_slow; 2]));
        assert!(
            one.not_met > 2.0 && one.not_met < 150.0_f64.ln() && two.not_met > 150.0_f64.ln(),
            "{one:?} {two:?}"
        );
        let dependent = Counts {
            dependence: 20.0,
            ..step(1_000.0, 0.0)
        };
        assert!(of(&[dependent; 5]).met < 0.6 * of(&[step(1_000.0, 0.0); 5]).met);
        // A backlog that grows without slow requests is none.
        let short = Counts {
            saturated: true,
            ..step(1_000.0, 0.0)
        };
        assert_eq!(of(&[short]), of(&[step(1_000.0, 0.0)]));
    }

    #[test]
    fn quiet_weather_elsewhere_makes_steps_say_more() {
        let mut elsewhere = Likelihood::none();
        for slow in [4.0, 6.0, 5.0, 5.0, 7.0, 4.0] {
            elsewhere.add(step(1_000.0, slow), 0.01);
        }
        let mut weather = Weather::default();
        elsewhere.tell(&mut weather);
        let mut clean = Likelihood::none();
        for _ in 0..4 {
            clean.add(step(1_000.0, 0.0), 0.01);
        }
        assert!(clean.evidence(&weather).met > clean.evidence(&Weather::default()).met + 0.5);
        let back = elsewhere.without(&weather);
        assert!(
            back.0
                .iter()
                .zip(Weather::default().0)
                .all(|(a, b)| (a - b).abs() < 1e-9)
        );
    }
}
