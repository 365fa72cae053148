//! Highest rate of a candidate under the objectives, from all of its steps together.
//!
//! In: likelihoods of the steps at each rate (`rate_points`). Out: the distribution of the highest rate.
//! Knows nothing of other candidates, of costs and of the next measurement.
//!
//! The odds of a slow request rise exponentially with the rate, as those of a long stay in an M/M/1 queue do, above a
//! floor of requests that are slow at any rate (misses, for example). At the highest rate the odds are those of the
//! limit; a candidate whose floor lies above the limit has no highest rate. The steepness of the rise, the floor and
//! the spread of repeats are unknown: the model averages over all of them, weighted by the likelihood of the steps. So
//! a step at one rate is evidence for other rates, as far as a curve goes through all steps.

use super::likelihood::{ODDS_STEP, SIGMAS, THETA_SIDE, THETAS};
use super::rate_points::RatePoint;
use std::sync::OnceLock;

/// Distance between highest rates on the grid, in the logarithm of the rate.
const STEP: f64 = 0.025;
/// Factor by which the grid begins below the lowest rate that matters.
const BELOW: f64 = 1.4;
/// Factor by which the grid ends above the highest rate that matters.
const ABOVE: f64 = 1.4;
/// Slopes of the log odds over the rate, in units of the highest rate, and their probabilities. A queue of constant
/// service times is the steepest.
const SLOPES: [f64; 5] = [4.0, 8.0, 16.0, 32.0, 64.0];
const SLOPE_PRIOR: [f64; SLOPES.len()] = [0.225, 0.225, 0.225, 0.225, 0.1];
/// Probability of each `σ` by slope: a repeat that is 10 % slower has log odds higher by a tenth of the slope.
const SIGMA_BY_SLOPE: [[f64; SIGMAS.len()]; SLOPES.len()] = [
    [0.95, 0.04, 0.008, 0.002],
    [0.86, 0.09, 0.04, 0.01],
    [0.7, 0.17, 0.09, 0.04],
    [0.7, 0.05, 0.15, 0.1],
    [0.7, 0.05, 0.15, 0.1],
];
/// Probability of each `σ` for candidates without a highest rate.
const SIGMA_NEVER_MET: [f64; SIGMAS.len()] = [0.8, 0.12, 0.06, 0.02];
/// Floors as shares of the limit with the index of their single slow requests, for candidates with a highest rate, and
/// their probabilities. A floor consists of misses, which are slow one by one, or of bursts at any rate.
const FLOORS: [(f64, usize); 5] = [(0.0, 0), (0.4, 0), (0.75, 0), (0.4, 1), (0.75, 2)];
const FLOOR_PRIOR: [f64; FLOORS.len()] = [0.7, 0.075, 0.075, 0.075, 0.075];
/// Floors in log odds above the limit, for candidates without a highest rate.
const NEVER_MET_FLOORS: [f64; 5] = [0.35, 0.8, 1.5, 3.0, 6.0];
/// Slope above the floor, and number of knees, for candidates without a highest rate.
const NEVER_MET_SLOPE: f64 = 12.0;
const NEVER_MET_KNEES: usize = 12;
/// Prior probability that a candidate has no highest rate.
const NEVER_MET_PRIOR: f64 = 0.1;
/// Prior probability that the highest rate lies above all rates that matter.
const TOP_PRIOR: f64 = 0.1;
/// Weight of other candidates' steps in the spread of this candidate's repeats.
const POOLING_WEIGHT: f64 = 0.5;
/// Number of curve shapes with a highest rate.
const SHAPES: usize = SLOPES.len() * FLOORS.len();
/// Half steps that the tables of odds cover on either side.
const TABLE_HALF_STEPS: i64 = 800;

/// Grid of highest rates that the model distinguishes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    /// Rates in requests per second, rising.
    pub(crate) rates: Vec<f64>,
    start: f64,
}

impl Grid {
    /// Creates a grid around the rates that matter, at least one.
    pub(crate) fn covering(rates: &[f64]) -> Self {
        let (low, high) = (rates[0], rates[rates.len() - 1]);
        let start = (low / BELOW).ln();
        let count = (((high * ABOVE).ln() - start) / STEP).ceil() as usize + 1;
        Self {
            rates: (0..count).map(|index| (start + index as f64 * STEP).exp()).collect(),
            start,
        }
    }

    fn count(&self) -> usize {
        self.rates.len()
    }

    /// Returns the distance of a rate from the grid's first, in half steps.
    fn half_steps(&self, rps: f64) -> i64 {
        ((rps.ln() - self.start) / (0.5 * STEP)).round() as i64
    }

    /// Number of states: every shape at every highest rate, then the states without a highest rate.
    fn states(&self) -> usize {
        SHAPES * self.count() + NEVER_MET_FLOORS.len() * NEVER_MET_KNEES
    }

    fn knee(&self, index: usize) -> usize {
        index * (self.count() - 1) / (NEVER_MET_KNEES - 1)
    }

    /// Calls `each` with every state's log odds at a rate, in steps of `θ` from the table's first.
    fn for_each_odds(&self, rps: f64, mut each: impl FnMut(usize, f32)) {
        let (tables, at) = (odds_tables(), self.half_steps(rps));
        let index = |k: usize| (at - 2 * k as i64 + TABLE_HALF_STEPS).clamp(0, 2 * TABLE_HALF_STEPS) as usize;
        let mut state = 0;
        for table in &tables[..SHAPES] {
            for k in 0..self.count() {
                each(state, table[index(k)]);
                state += 1;
            }
        }
        for table in &tables[SHAPES..] {
            for knee in 0..NEVER_MET_KNEES {
                each(state, table[index(self.knee(knee))]);
                state += 1;
            }
        }
    }

    /// Returns the index of a state's highest rate; `None` if it has none.
    fn highest(&self, state: usize) -> Option<usize> {
        (state < SHAPES * self.count()).then(|| state % self.count())
    }

    /// Returns the index of a state's single slow requests.
    fn singles(&self, state: usize) -> usize {
        self.highest(state)
            .map_or(0, |_| FLOORS[state / (SLOPES.len() * self.count())].1)
    }

    /// Prior by `σ` and state.
    fn prior(&self) -> Prior {
        let states = self.state_prior();
        let of_shapes = SHAPES * self.count();
        std::array::from_fn(|sigma| {
            let by_shape = |state: usize| match state / self.count() {
                _ if state >= of_shapes => SIGMA_NEVER_MET[sigma],
                shape => SIGMA_BY_SLOPE[shape % SLOPES.len()][sigma],
            };
            let joint = states.iter().enumerate().map(|(state, prior)| prior * by_shape(state));
            joint.collect()
        })
    }

    fn state_prior(&self) -> Vec<f64> {
        let count = self.count() as f64;
        let uniform = (1.0 - NEVER_MET_PRIOR - TOP_PRIOR) / count;
        let mut prior: Vec<f64> = Vec::with_capacity(self.states());
        for shape in 0..SHAPES {
            let share = FLOOR_PRIOR[shape / SLOPES.len()] * SLOPE_PRIOR[shape % SLOPES.len()];
            prior.extend((0..self.count()).map(|k| {
                let top = if k + 1 == self.count() { TOP_PRIOR } else { 0.0 };
                share * (uniform + top)
            }));
        }
        let never_met = NEVER_MET_PRIOR / (NEVER_MET_FLOORS.len() * NEVER_MET_KNEES) as f64;
        prior.extend(std::iter::repeat_n(never_met, NEVER_MET_FLOORS.len() * NEVER_MET_KNEES));
        prior
    }
}

/// Probability of each state by `σ`, before any step.
type Prior = [Vec<f64>; SIGMAS.len()];

/// Tables of log odds, for each shape and then for each floor without a highest rate. Indexed by half steps of the rate
/// from the highest rate or the knee.
fn odds_tables() -> &'static [Vec<f32>] {
    static TABLES: OnceLock<Vec<Vec<f32>>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let table = |floor: f64, rising: f64, slope: f64| {
            let at = |index: i64| {
                let x = (index - TABLE_HALF_STEPS) as f64 * 0.5 * STEP;
                let odds = floor + rising * (slope * x.exp_m1()).min(700.0).exp();
                let theta = odds.max(1e-300).ln();
                let most = (THETAS - 1) as f64;
                // Leaves a whole step on the right for interpolation.
                (theta / ODDS_STEP + THETA_SIDE as f64).clamp(0.0, most - 1e-3) as f32
            };
            (0..=2 * TABLE_HALF_STEPS).map(at).collect()
        };
        let of_floor = |(floor, _): (f64, usize)| SLOPES.map(|slope| table(floor, 1.0 - floor, slope));
        let without = NEVER_MET_FLOORS.map(|odds| table(odds.exp(), 1.0, NEVER_MET_SLOPE));
        FLOORS.into_iter().flat_map(of_floor).chain(without).collect()
    })
}

/// Log likelihood of a candidate's steps, by curve state and spread of repeats.
#[derive(Debug, Clone)]
pub(crate) struct CurveFit {
    /// Log likelihoods by `σ`, then by state.
    logs: Vec<Vec<f64>>,
}

impl CurveFit {
    /// Computes the likelihood of a candidate's steps for one objective, or for failures if it has too many.
    pub(crate) fn of(grid: &Grid, points: &[RatePoint], objective: usize) -> Self {
        let mut logs = vec![vec![0.0; grid.states()]; SIGMAS.len()];
        for point in points {
            let likelihood = &point.likelihoods[objective];
            grid.for_each_odds(point.rps, |state, at| {
                let (from, share) = (at as usize, f64::from(at.fract()));
                let singles = grid.singles(state);
                for (sigma, logs) in logs.iter_mut().enumerate() {
                    let row = likelihood.row(singles, sigma);
                    logs[state] += row[from] + share * (row[from + 1] - row[from]);
                }
            });
        }
        Self { logs }
    }

    /// Returns the log likelihood of each `σ`, averaged over states.
    fn spread_logs(&self, prior: &Prior) -> [f64; SIGMAS.len()] {
        std::array::from_fn(|sigma| {
            let logs = &self.logs[sigma];
            let greatest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weighted = logs.iter().zip(&prior[sigma]);
            let weighted = weighted.filter(|(log, _)| **log - greatest > LEAST_LOG);
            let sum: f64 = weighted.map(|(log, prior)| prior * (log - greatest).exp()).sum();
            greatest + (sum / prior[sigma].iter().sum::<f64>()).ln()
        })
    }
}

/// Distribution of a candidate's highest rate.
#[derive(Debug, Clone)]
pub(crate) struct HighestRate {
    /// Probability of each of the grid's rates being the highest.
    pub(crate) mass: Vec<f64>,
    /// Probability that no rate meets the objectives.
    pub(crate) never_met: f64,
    /// States with their probabilities, without negligible ones.
    weights: Vec<(usize, f64)>,
}

/// Probability below which a state is negligible.
const NEGLIGIBLE: f64 = 1e-7;
/// Log likelihood, relative to the greatest, below which a state vanishes in a sum.
const LEAST_LOG: f64 = -40.0;

/// Returns the curves of all candidates for one objective each; the spread of repeats is pooled over all of them.
pub(crate) fn curves(grid: &Grid, fits: &[CurveFit]) -> Vec<HighestRate> {
    let prior = grid.prior();
    let own: Vec<[f64; SIGMAS.len()]> = fits.iter().map(|fit| fit.spread_logs(&prior)).collect();
    let mut all = [0.0; SIGMAS.len()];
    for own in &own {
        for (all, own) in all.iter_mut().zip(own) {
            *all += POOLING_WEIGHT * own;
        }
    }
    let curve = |(fit, own): (&CurveFit, &[f64; SIGMAS.len()])| {
        let sigma_logs = std::array::from_fn(|sigma| all[sigma] - POOLING_WEIGHT * own[sigma]);
        HighestRate::of(grid, &prior, fit, &sigma_logs)
    };
    fits.iter().zip(&own).map(curve).collect()
}

impl HighestRate {
    fn of(grid: &Grid, prior: &Prior, fit: &CurveFit, sigma_logs: &[f64; SIGMAS.len()]) -> Self {
        let by_sigma = fit.logs.iter().zip(sigma_logs);
        let all = by_sigma.flat_map(|(logs, sigma)| logs.iter().map(move |log| log + sigma));
        let greatest = all.fold(f64::NEG_INFINITY, f64::max);
        let mut weights = vec![0.0; grid.states()];
        for ((logs, sigma), prior) in fit.logs.iter().zip(sigma_logs).zip(prior) {
            let shift = sigma - greatest;
            for ((weight, log), prior) in weights.iter_mut().zip(logs).zip(prior) {
                let log = log + shift;
                if log > LEAST_LOG {
                    *weight += prior * log.exp();
                }
            }
        }
        let sum: f64 = weights.iter().sum();
        let mut curve = Self {
            mass: vec![0.0; grid.count()],
            never_met: 0.0,
            weights: Vec::new(),
        };
        for (state, weight) in weights.into_iter().enumerate() {
            let weight = weight / sum;
            match grid.highest(state) {
                Some(k) => curve.mass[k] += weight,
                None => curve.never_met += weight,
            }
            if weight > NEGLIGIBLE {
                curve.weights.push((state, weight));
            }
        }
        curve
    }

    /// Returns the distribution before any step.
    pub(crate) fn prior(grid: &Grid) -> Self {
        Self::of(grid, &grid.prior(), &CurveFit::of(grid, &[], 0), &[0.0; SIGMAS.len()])
    }

    /// Combines the curves of several objectives, all of which must be met. Meeting a rate is no more likely than for
    /// any single objective.
    pub(crate) fn combined(grid: &Grid, curves: Vec<Self>) -> Self {
        let mut curves = curves.into_iter();
        let Some(mut all) = curves.next() else {
            return Self::prior(grid);
        };
        for other in curves {
            let lower = other.mean(grid) < all.mean(grid);
            // Probabilities that the highest rate is at least the grid's, from the top: the smaller of the two counts.
            let (mut above, mut above_other) = (0.0, 0.0);
            let mut least = 0.0;
            for (mass, more) in all.mass.iter_mut().zip(&other.mass).rev() {
                above += *mass;
                above_other += more;
                let now = f64::min(above, above_other);
                *mass = now - least;
                least = now;
            }
            all.never_met = 1.0 - least;
            if lower {
                all.weights = other.weights;
            }
        }
        all
    }

    fn mean(&self, grid: &Grid) -> f64 {
        let low = grid.start - 1.0;
        let by_rate = self.mass.iter().zip(&grid.rates);
        by_rate.map(|(mass, rps)| mass * (rps.ln() - low)).sum()
    }

    /// Returns the probability that a rate meets the objectives.
    pub(crate) fn at_least(&self, grid: &Grid, rps: f64) -> f64 {
        let above = self.mass.iter().zip(&grid.rates).rev();
        let above = above.take_while(|(_, highest)| **highest >= rps * (1.0 - 1e-6));
        above.map(|(mass, _)| mass).sum()
    }

    /// Returns the rate that the highest rate exceeds with a probability, interpolated between the rates of the grid.
    /// Returns 0 if meeting any rate is less likely than that. Returns infinity if the highest rate lies above the grid
    /// with that probability.
    pub(crate) fn exceeded(&self, grid: &Grid, probability: f64) -> f64 {
        let mut above = 0.0;
        for (index, (mass, rps)) in self.mass.iter().zip(&grid.rates).enumerate().rev() {
            if above + mass >= probability {
                let share = (probability - above) / mass.max(f64::MIN_POSITIVE);
                return match index + 1 == self.mass.len() {
                    true => f64::INFINITY,
                    false => rps * (STEP * (0.5 - share)).exp(),
                };
            }
            above += mass;
        }
        0.0
    }

    /// Returns the interval that leaves out a probability of `side` at either end.
    pub(crate) fn interval(&self, grid: &Grid, side: f64) -> (f64, f64) {
        (self.exceeded(grid, 1.0 - side), self.exceeded(grid, side))
    }

    /// Returns the median of the highest rate; `None` if no rate is likely to meet the objectives.
    pub(crate) fn median(&self, grid: &Grid) -> Option<f64> {
        let top = grid.rates[grid.rates.len() - 1];
        Some(self.exceeded(grid, 0.5).min(top)).filter(|rps| *rps > 0.0)
    }

    /// Returns the expected information of a step at a rate about an event, in nats. `probability` is the event's
    /// probability given the index of the highest rate, or given none. `requests` is the step's effective number of
    /// requests.
    pub(crate) fn information(
        &self,
        grid: &Grid,
        rps: f64,
        requests: f64,
        limit: f64,
        probability: &dyn Fn(Option<usize>) -> f64,
    ) -> f64 {
        let mut weights = self.weights.iter().peekable();
        let mut sums = [[0.0; OUTCOMES]; 2];
        grid.for_each_odds(rps, |state, at| {
            if weights.peek().is_none_or(|(next, _)| *next != state) {
                return;
            }
            let Some((_, weight)) = weights.next() else { return };
            let theta = (f64::from(at) - THETA_SIDE as f64) * ODDS_STEP;
            let probability = probability(grid.highest(state));
            let odds = (theta.exp() * limit / (1.0 - limit)).min(1e9);
            for (outcome, likelihood) in outcomes(requests * odds / (1.0 + odds)).into_iter().enumerate() {
                sums[0][outcome] += weight * probability * likelihood;
                sums[1][outcome] += weight * (1.0 - probability) * likelihood;
            }
        });
        information(&sums)
    }
}

const OUTCOMES: usize = 3;

/// Returns the probabilities of no slow request, a few and more, given the expected number.
fn outcomes(expected: f64) -> [f64; OUTCOMES] {
    let none = (-expected).exp();
    let few = none * expected * (1.0 + expected / 2.0 * (1.0 + expected / 3.0));
    [none, few, (1.0 - none - few).max(0.0)]
}

/// Returns the mutual information between row and outcome, in nats.
fn information(sums: &[[f64; OUTCOMES]; 2]) -> f64 {
    let rows = sums.map(|row| row.iter().sum::<f64>());
    let all: f64 = rows.iter().sum();
    let mut nats = 0.0;
    for outcome in 0..OUTCOMES {
        let column = sums[0][outcome] + sums[1][outcome];
        for (row, sum) in sums.iter().zip(rows) {
            if row[outcome] > 0.0 {
                nats += row[outcome] / all * (row[outcome] * all / (column * sum)).ln();
            }
        }
    }
    nats.max(0.0)
}
