//! Rounds of a run. In: targets to measure. Out: each target once a round, in a new random order from the seed, until an interrupt;
//! and progress on stderr: a bar with the remaining time, or lines without a terminal. And means of a value over the repeats, with 95 %
//! intervals, which have no upper end for a single value.

use crate::random::Random;
use crate::stop::Stop;
use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use std::fmt::Display;
use std::time::{Duration, Instant};
use tierlab_analysis::record::Interval;
use tierlab_analysis::statistics::sections::mean_interval;
use tierlab_instrument::progress::{bar, pace, remaining};
use tierlab_instrument::units::wait;

/// Time of a measurement outside its window: dropping or warming the page cache, starting callers.
pub(crate) const STEP_OVERHEAD: Duration = Duration::from_millis(100);

/// Returns every target once a round, in a random order per round, with the number of the round.
pub(crate) fn shuffled_rounds<P>(seed: u64, rounds: u32, targets: &[P]) -> Vec<(u32, &P)> {
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<(u32, &P)> = targets.iter().map(|target| (round, target)).collect();
        Random::new(seed, u64::from(round)).shuffle(&mut order);
        all.extend(order);
    }
    all
}

/// The rounds of a run, with their progress.
pub(crate) struct Rounds<'a> {
    count: u32,
    stop: &'a Stop,
    /// Cleared when it is dropped.
    bar: Option<ProgressBar>,
    started: Instant,
    expected: Duration,
    total: u32,
    done: u32,
}

impl<'a> Rounds<'a> {
    /// Creates `count` rounds with `steps` steps in all, including preparations. `expected` is the time of a step until one has ended.
    pub(crate) fn new(count: u32, stop: &'a Stop, steps: usize, expected: Duration) -> Self {
        let total = u32::try_from(steps).unwrap_or(u32::MAX);
        let bar = bar(total);
        if bar.is_none() {
            eprintln!("repeats: {total}, about {}", wait(expected.saturating_mul(total)));
        }
        Self {
            count,
            stop,
            bar,
            started: Instant::now(),
            expected,
            total,
            done: 0,
        }
    }

    /// Prepares each target before any measurement, because writes would disturb it.
    ///
    /// # Errors
    /// Errors of `act`, with the target.
    pub(crate) fn prepare<P: Display>(&mut self, targets: &[P], mut act: impl FnMut(&P) -> Result<()>) -> Result<()> {
        let mut each = targets.iter();
        each.try_for_each(|target| self.step(&format!("preparing {target}"), target, || act(target)))
    }

    /// Measures targets in the order of [`shuffled_rounds`].
    ///
    /// # Errors
    /// Errors of `measure`, with the target.
    pub(crate) fn measure<P: Display>(
        &mut self,
        order: &[(u32, &P)],
        mut measure: impl FnMut(u32, &P) -> Result<()>,
    ) -> Result<()> {
        order.iter().try_for_each(|&(round, target)| {
            let what = format!("round {} of {}, {target}", round + 1, self.count);
            self.step(&what, target, || measure(round, target))
        })
    }

    /// Runs a step, unless interrupted.
    fn step(&mut self, what: &str, target: &impl Display, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.stop.is_requested() {
            return Ok(());
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}  {what}", self.eta()));
        }
        act().with_context(|| target.to_string())?;
        self.done += 1;
        // Without a terminal, an occasional line.
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.done.is_multiple_of((self.total / 10).max(1)) => {
                eprintln!("repeat {} of {}, {}", self.done, self.total, self.eta());
            }
            None => {}
        }
        Ok(())
    }

    fn eta(&self) -> String {
        let (step, left) = pace(self.done, self.total, self.started.elapsed(), self.expected);
        format!("ETA {}", wait(remaining(step, left, Duration::ZERO)))
    }
}

/// Mean of values that are not below 0, with an interval that is not either: Student's t on the scale of the logarithm, from the relative
/// error of the mean. 0 without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Interval {
    let of = student(&Vec::from_iter(values));
    let half = of.hi - of.value;
    let factor = (half / of.value.max(f64::MIN_POSITIVE)).exp();
    // `max` ignores the product of 0 and infinity.
    Interval::new(of.value, of.value / factor, (of.value * factor).max(of.value + half))
}

/// Mean of shares, with an interval that does not exceed 1, and is open for a single value.
pub(crate) fn mean_share(values: impl IntoIterator<Item = f64>) -> Interval {
    mean(values).map(|end| if end.is_finite() { end.min(1.0) } else { end })
}

/// Geometric mean of values above 0 that differ by factors.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Interval {
    student(&Vec::from_iter(values.into_iter().map(f64::ln))).map(f64::exp)
}

/// Name of the lowest value, with the names of those that cannot be told from it because their intervals overlap.
pub(crate) fn lowest(values: impl IntoIterator<Item = (String, Interval)>) -> String {
    let mut order = Vec::from_iter(values);
    order.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let bound = order.first().map_or(f64::INFINITY, |(_, interval)| interval.hi);
    order.retain(|(_, interval)| interval.lo <= bound);
    let names: Vec<String> = order.into_iter().map(|(name, _)| name).collect();
    names.join(" or, without a significant difference, ")
}

/// Value with the opposite sign, so that [`lowest`] names the highest.
pub(crate) const fn negated(of: Interval) -> Interval {
    Interval::new(-of.value, -of.hi, -of.lo)
}

/// Mean with Student's interval, which is open for a single value.
pub(crate) fn student(values: &[f64]) -> Interval {
    let lone = values.first().copied().unwrap_or(0.0);
    mean_interval(values).unwrap_or(Interval::new(lone, f64::NEG_INFINITY, f64::INFINITY))
}

/// Value below which a share of the values is; `None` without values.
pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_zero_without_a_sign() {
        assert!(mean([]).value.is_sign_positive());
    }

    #[test]
    fn the_lowest_is_named_with_those_whose_intervals_overlap_its_own() {
        let of = |values: [(&str, f64); 3], half: f64| {
            lowest(values.map(|(name, value)| (name.to_owned(), Interval::new(value, value - half, value + half))))
        };
        let values = [("c", 3.0), ("a", 1.0), ("b", 1.5)];
        assert_eq!(of(values, 0.1), "a");
        assert_eq!(of(values, 0.3), "a or, without a significant difference, b");
        assert_eq!(lowest([]), "");
    }

    #[test]
    fn a_single_value_is_compared_with_nothing() {
        let of = mean([3.0]);
        assert_eq!((of.value, of.lo, of.hi), (3.0, 0.0, f64::INFINITY));
        for of in [geometric_mean([1.0]), mean_share([1.0])] {
            assert_eq!((of.value, of.lo, of.hi), (1.0, 0.0, f64::INFINITY));
        }
    }

    #[test]
    fn an_interval_of_a_rate_is_above_zero() {
        for values in [vec![40.0, 63.0], vec![0.0, 63.0], vec![1.0, 1.0, 900.0]] {
            let of = mean(values);
            assert!(
                of.lo >= 0.0 && of.lo < of.value && of.value < of.hi && of.hi.is_finite(),
                "{of:?}"
            );
        }
        for (values, hi) in [
            (vec![], f64::INFINITY),
            (vec![0.0], f64::INFINITY),
            (vec![0.0, 0.0], 0.0),
        ] {
            let of = mean(values);
            assert_eq!((of.value, of.lo, of.hi), (0.0, 0.0, hi));
        }
    }

    /// Share of the intervals of `repeats` draws that contain the draws' mean of 1.
    fn coverage(repeats: usize, draw: fn(&mut Random) -> f64) -> f64 {
        const TRIALS: u64 = 4000;
        let covers = |trial: u64| {
            let mut random = Random::new(5, trial);
            let of = mean((0..repeats).map(|_| draw(&mut random)));
            of.lo <= 1.0 && of.hi >= 1.0
        };
        (0..TRIALS).filter(|trial| covers(*trial)).count() as f64 / TRIALS as f64
    }

    #[test]
    fn intervals_of_means_cover_what_they_say() {
        let exponential: fn(&mut Random) -> f64 = |random| -(1.0 - random.fraction()).ln();
        let uniform: fn(&mut Random) -> f64 = |random| 0.5 + random.fraction();
        for repeats in [2, 3, 5, 10] {
            // Cut off at 0, Student's own intervals cover 88 to 91 % of the means of exponential values.
            for (law, draw) in [("exponential", exponential), ("uniform", uniform)] {
                let covered = coverage(repeats, draw);
                assert!((0.92..0.97).contains(&covered), "{repeats} {law}: {covered}");
            }
        }
    }

    #[test]
    fn factors_have_a_mean_between_them() {
        let of = geometric_mean([0.5, 2.0, 1.0, 1.0]);
        assert!((of.value - 1.0).abs() < 1e-12 && of.lo < 1.0 && of.hi > 1.0);
        assert!(
            (of.lo * of.hi - 1.0).abs() < 1e-9,
            "as far up as down, as a factor: {of:?}"
        );
    }
}
