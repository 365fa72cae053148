//! Rounds of a run. In: targets to measure. Out: each target once a round, in a new random order from the seed, until an interrupt;
//! and progress on stderr: a bar with the remaining time, or lines without a terminal.

use crate::chance::Random;
use crate::stop::Stop;
use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use std::fmt::Display;
use std::time::{Duration, Instant};
use tierlab_instrument::progress::{bar, pace, remaining};
use tierlab_instrument::units::wait;

/// Returns every target once a round, in a random order per round, with the number of the round.
pub(crate) fn order<P>(seed: u64, rounds: u32, places: &[P]) -> Vec<(u32, &P)> {
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<(u32, &P)> = places.iter().map(|place| (round, place)).collect();
        Random::new(seed, u64::from(round)).shuffle(&mut order);
        all.extend(order);
    }
    all
}

/// The rounds of a run, with their progress.
pub(crate) struct Rounds<'a> {
    count: u32,
    stop: &'a Stop,
    bar: Option<ProgressBar>,
    started: Instant,
    expected: Duration,
    todo: u32,
    done: u32,
}

impl<'a> Rounds<'a> {
    /// Creates `count` rounds with `steps` steps in all, including preparations. `expected` is the time of a step until one has ended.
    pub(crate) fn new(count: u32, stop: &'a Stop, steps: usize, expected: Duration) -> Self {
        let todo = u32::try_from(steps).unwrap_or(u32::MAX);
        let bar = bar(todo);
        if bar.is_none() {
            eprintln!("{todo} repeats, about {}", wait(expected.saturating_mul(todo)));
        }
        Self {
            count,
            stop,
            bar,
            started: Instant::now(),
            expected,
            todo,
            done: 0,
        }
    }

    /// Prepares each target before any measurement, because writes would disturb it.
    ///
    /// # Errors
    /// Errors of `prepare`, with the target.
    pub(crate) fn prepare<P: Display>(
        &mut self,
        places: &[P],
        mut prepare: impl FnMut(&P) -> Result<()>,
    ) -> Result<()> {
        let mut each = places.iter();
        each.try_for_each(|place| self.step(&format!("preparing {place}"), place, || prepare(place)))
    }

    /// Measures targets in their [`order`].
    ///
    /// # Errors
    /// Errors of `measure`, with the target.
    pub(crate) fn measure<P: Display>(
        &mut self,
        order: &[(u32, &P)],
        mut measure: impl FnMut(u32, &P) -> Result<()>,
    ) -> Result<()> {
        order.iter().try_for_each(|&(round, place)| {
            let what = format!("round {} of {}, {place}", round + 1, self.count);
            self.step(&what, place, || measure(round, place))
        })
    }

    /// Runs a step, unless interrupted.
    fn step(&mut self, what: &str, place: &impl Display, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.stop.is_asked() {
            return Ok(());
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}  {what}", self.eta()));
        }
        act().with_context(|| place.to_string())?;
        self.done += 1;
        // Without a terminal, an occasional line.
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.done.is_multiple_of((self.todo / 10).max(1)) => {
                eprintln!("{}/{} repeats, {}", self.done, self.todo, self.eta());
            }
            None => {}
        }
        Ok(())
    }

    fn eta(&self) -> String {
        let (step, left) = pace(self.done, self.todo, self.started.elapsed(), self.expected);
        format!("ETA {}", wait(remaining(step, left, Duration::ZERO)))
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
