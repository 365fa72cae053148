//! How often `compare` finds a change, and calls one where there is none.
//!
//! In: a number of trials and a seed. Out: rows. Every trial is a pair of points of ten repeats of 2.5 s at 400/s, whose
//! repeats differ by a factor of their own in each run, as if the two had been made one after the other; both go through
//! `tierlab_analysis::curves::comparison`. Requests are lognormal (sigma 0.5). How much repeats differ is taken from the run kept in
//! `results/quick-2core`, where a point's medians differ from one repeat to the next by 3 to 25 %, by 7 % in the middle of
//! its points: a machine with two shared cores. A quiet one differs by about 2 %.

use super::laws::{normal, weather};
use super::simulated;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::curves::comparison::{Decision, WITHIN, decide, figures};
use tierlab_analysis::record::{Limits, Point};
use tierlab_analysis::summarise;
use tierlab_load::schedule::split_mix;

const REPEATS: usize = 10;
const RPS: f64 = 400.0;
const WINDOW_S: f64 = 2.5;
/// Spread of a quiet machine, for which [`FOUND`] and [`CALLED`] are asked.
const QUIET: f64 = 0.02;
/// How often 10 % should be found.
const FOUND: f64 = 0.9;
/// How often worse may be called where nothing changed.
const CALLED: f64 = 0.05;

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompareSetting {
    /// How much repeats differ.
    pub spread: f64,
    /// By what share B is slower.
    pub slower: f64,
}

/// The settings of the kept table.
#[must_use]
pub fn compare_settings() -> Vec<CompareSetting> {
    let spreads = [QUIET, 0.035, 0.07];
    spreads
        .into_iter()
        .flat_map(|spread| [0.0, 0.05, 0.1, 0.2].map(|slower| CompareSetting { spread, slower }))
        .collect()
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareRow {
    /// What was simulated.
    pub setting: CompareSetting,
    /// Pairs.
    pub trials: usize,
    /// Pairs in which any figure was called worse.
    pub worse: usize,
    /// Pairs in which any was called better.
    pub better: usize,
    /// Pairs in which the median was called equivalent.
    pub equivalent: usize,
    /// Sum of the smallest changes of the median that could have been found.
    pub smallest: f64,
    /// Pairs of points that were both valid.
    pub valid: usize,
}

impl CompareRow {
    /// Share of the pairs called worse.
    #[must_use]
    pub fn worse_share(&self) -> f64 {
        self.worse as f64 / self.trials.max(1) as f64
    }

    /// Whether it is as it should be, within what chance explains (two standard deviations).
    #[must_use]
    pub fn holds(&self) -> bool {
        let chance = |share: f64| 2.0 * (share * (1.0 - share) / self.trials.max(1) as f64).sqrt();
        if self.setting.slower == 0.0 {
            self.worse_share() <= CALLED + chance(CALLED)
        } else {
            self.setting.spread > QUIET || self.setting.slower < 0.1 || self.worse_share() >= FOUND - chance(FOUND)
        }
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
    };
    for trial in 0..trials {
        let mut rng = ChaCha8Rng::seed_from_u64(split_mix(seed.wrapping_add(trial as u64)));
        let a = one(&mut rng, setting.spread, 1.0);
        let b = one(&mut rng, setting.spread, 1.0 + setting.slower);
        row.valid += usize::from([&a, &b].into_iter().all(tierlab_analysis::curves::is_valid));
        let decided = decide(&figures(&a, &b, None), WITHIN, Limits::default().error_share);
        let any = |decision| decided.iter().any(|one| one.decision == decision);
        row.worse += usize::from(any(Decision::Worse));
        row.better += usize::from(any(Decision::Better));
        row.equivalent += usize::from(decided[0].decision == Decision::Equivalent);
        row.smallest += decided[0].smallest.unwrap_or(f64::INFINITY);
    }
    row
}

fn one(rng: &mut ChaCha8Rng, spread: f64, slower: f64) -> Point {
    let repeats = (0..REPEATS)
        .map(|index| {
            let factor = 1_000.0 * slower * weather(rng, spread);
            let latencies: Vec<f64> = (0..(RPS * WINDOW_S) as usize)
                .map(|_| factor * (0.5 * normal(rng)).exp())
                .collect();
            let mut repeat = simulated::repeat(index, &latencies, RPS);
            // A few replies more or fewer come in before a window's end.
            repeat.achieved_rps *= 1.0 + 0.001 * normal(rng);
            repeat
        })
        .collect();
    let mut point = [simulated::point(RPS, repeats)];
    summarise(&mut point, &Limits::default(), None);
    let [point] = point;
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn ten_percent_are_found_and_nothing_is_called_where_nothing_changed() {
        for slower in [0.0, 0.1] {
            let row = compare_row(CompareSetting { spread: QUIET, slower }, 60, 5);
            assert!(row.holds(), "{row:?}");
            assert!(row.valid >= 58, "{row:?}");
        }
    }
}
