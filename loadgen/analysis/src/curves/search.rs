//! Search for the highest rate that meets an objective.
//!
//! In: results of the rates measured so far. Out: the next rate to measure and its number of repeats, or `None` at the
//! end. Pure and stateless: earlier measurements (a plan's own loads, an earlier run that is resumed) are evidence like
//! any other, and the same evidence gives the same next rate. Knows neither servers nor percentiles.
//!
//! Rates double until one misses the objective (or halve until one meets it), then the gap is bisected with as few
//! repeats as the percentile needs. At the requested resolution both sides of the gap are measured with all repeats; if
//! that overturns one of them, the bisection goes on from there. Finally, a few small steps outwards look for rates
//! that certainly meet or miss the objective: the ends of the interval.
//!
//! A rate at which the instrument failed is no evidence. In the gap it is measured again, [`MAX_TRIES`] times in all;
//! then other rates in the gap are tried, and if those fail too, the gap stays open.

use super::slo::{RateEvidence, cut};
use crate::record::MeetsObjective;

/// Maximum number of rates measured by one search.
pub const MAX_PROBES: usize = 60;
/// Maximum measurements of a rate at which the instrument failed, the first included.
pub const MAX_TRIES: u32 = 3;
/// Relative positions of candidate rates in a gap, by ratio: the middle, then beside it if the middle gives no answer.
const SPLITS: [f64; 3] = [0.5, 0.75, 0.25];
/// Maximum steps away from the boundary, on either side, to find a rate that certainly meets or misses the objective.
const MARGIN_STEPS: usize = 3;
/// Maximum width of a gap, in steps of the resolution, within which a rate gets all repeats if one of its neighbours has
/// them: a single repeat would be too little evidence beside it.
const CLOSE_STEPS: i32 = 4;

/// Rate to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateProbe {
    /// Requests per second.
    pub rps: f64,
    /// Repeats that the rate must have.
    pub repeats: u32,
}

/// Range and resolution of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// First rate to measure while there is no evidence, in requests per second.
    pub start_rps: f64,
    /// Lowest rate, in requests per second.
    pub lowest_rps: f64,
    /// Highest rate, in requests per second.
    pub highest_rps: f64,
    /// Target distance of the two sides of the boundary, as a share.
    pub resolution: f64,
    /// Repeats of the rates at the boundary.
    pub repeats: u32,
    /// Samples that the percentile needs.
    pub samples: u64,
    /// Length of one repeat's window, in seconds.
    pub window_s: f64,
}

impl Search {
    /// Returns the next rate to measure; `None` at the end. `measured` is the evidence, sorted by rising rate.
    pub fn next(&self, measured: &[RateEvidence]) -> Option<RateProbe> {
        let (judged, unjudged): (Vec<RateEvidence>, Vec<RateEvidence>) =
            measured.iter().partition(|one| one.answer != MeetsObjective::Unknown);
        let cut = cut(&judged);
        let met = cut.checked_sub(1).and_then(|last| judged.get(last));
        let not_met = judged.get(cut);
        match (met, not_met) {
            (None, None) => self.downwards_from(self.start_rps.clamp(self.lowest_rps, self.highest_rps), &unjudged),
            (Some(met), None) if met.rps >= self.highest_rps => self.refined(met),
            (Some(met), None) => self.above(met, &unjudged).or_else(|| self.refined(met)),
            (None, Some(not_met)) if not_met.rps <= self.lowest_rps => self.refined(not_met),
            (None, Some(not_met)) => {
                let half = rounded(not_met.rps / 2.0).max(self.lowest_rps);
                self.downwards_from(half, &unjudged).or_else(|| self.refined(not_met))
            }
            (Some(met), Some(not_met)) => self
                .between(met, not_met, &unjudged)
                .or_else(|| self.refined(met))
                .or_else(|| self.refined(not_met))
                .or_else(|| self.downwards(&judged[..cut], met.rps, &unjudged))
                .or_else(|| self.upwards(&judged[cut..], not_met.rps, &unjudged)),
        }
    }

    /// Returns `from`, or the first of its halves (`from / 2`, `from / 4`, …) that is not given up.
    fn downwards_from(&self, from: f64, unjudged: &[RateEvidence]) -> Option<RateProbe> {
        let mut rps = from;
        while is_given_up(unjudged, rps) {
            if rps <= self.lowest_rps {
                return None;
            }
            rps = rounded(rps / 2.0).max(self.lowest_rps);
        }
        Some(self.coarse(rps))
    }

    /// Returns twice a rate that meets the objective, or a rate between the two if the instrument fails there.
    fn above(&self, met: &RateEvidence, unjudged: &[RateEvidence]) -> Option<RateProbe> {
        let double = rounded(2.0 * met.rps).min(self.highest_rps);
        let is_between = |one: &&RateEvidence| one.rps > met.rps && one.rps <= double;
        let failed = unjudged.iter().filter(is_between).find(|one| one.tries >= MAX_TRIES);
        let Some(failed) = failed else {
            return Some(self.coarse(double));
        };
        let middle = rounded((met.rps * failed.rps).sqrt());
        let is_wide = failed.rps / met.rps > 1.0 + self.resolution;
        (is_wide && middle > met.rps && middle < failed.rps).then(|| self.coarse(middle))
    }

    /// Returns the middle of a gap that is too wide, by ratio.
    fn between(&self, met: &RateEvidence, not_met: &RateEvidence, unjudged: &[RateEvidence]) -> Option<RateProbe> {
        let ratio = not_met.rps / met.rps;
        if ratio <= 1.0 + self.resolution {
            return None;
        }
        let is_inside = |rps: &f64| *rps > met.rps && *rps < not_met.rps;
        let candidates = SPLITS.map(|part| rounded(met.rps * ratio.powf(part))).into_iter();
        let rps = candidates.filter(is_inside).find(|&rps| !is_given_up(unjudged, rps))?;
        let is_weighed = self.is_full(met) || self.is_full(not_met);
        Some(match is_weighed && ratio <= (1.0 + self.resolution).powi(CLOSE_STEPS) {
            true => self.full(rps),
            false => self.coarse(rps),
        })
    }

    /// Returns the next step down to a rate that certainly meets the objective, unless there is one.
    fn downwards(&self, judged: &[RateEvidence], from: f64, unjudged: &[RateEvidence]) -> Option<RateProbe> {
        let certain = |rps: f64| judged.iter().any(|one| one.is_met() && one.certain && one.rps >= rps);
        let step = |rps: f64| Some(rounded(rps / (1.0 + self.resolution))).filter(|&rps| rps >= self.lowest_rps);
        self.step_outwards(judged, unjudged, from, certain, step)
    }

    /// Returns the next step up towards a rate that certainly misses the objective, unless there is one.
    fn upwards(&self, judged: &[RateEvidence], from: f64, unjudged: &[RateEvidence]) -> Option<RateProbe> {
        let certain = |rps: f64| judged.iter().any(|one| !one.is_met() && one.certain && one.rps <= rps);
        let step = |rps: f64| Some(rounded(rps * (1.0 + self.resolution))).filter(|&rps| rps <= self.highest_rps);
        self.step_outwards(judged, unjudged, from, certain, step)
    }

    fn step_outwards(
        &self,
        judged: &[RateEvidence],
        unjudged: &[RateEvidence],
        from: f64,
        certain: impl Fn(f64) -> bool,
        step: impl Fn(f64) -> Option<f64>,
    ) -> Option<RateProbe> {
        let mut rps = from;
        for _ in 0..MARGIN_STEPS {
            if certain(rps) {
                return None;
            }
            rps = step(rps)?;
            let is_done = judged.iter().any(|one| one.rps == rps && self.is_full(one));
            if !is_done && !is_given_up(unjudged, rps) {
                return (!certain(rps)).then(|| self.full(rps));
            }
        }
        None
    }

    const fn is_full(&self, one: &RateEvidence) -> bool {
        one.repeats >= self.repeats
    }

    fn refined(&self, one: &RateEvidence) -> Option<RateProbe> {
        (!self.is_full(one)).then(|| self.full(one.rps))
    }

    const fn full(&self, rps: f64) -> RateProbe {
        RateProbe {
            rps,
            repeats: self.repeats,
        }
    }

    /// Creates a probe with as many repeats as the samples need, at most all.
    fn coarse(&self, rps: f64) -> RateProbe {
        let each = (rps * self.window_s).round().max(1.0);
        let repeats = (self.samples as f64 / each).ceil() as u32;
        RateProbe {
            rps,
            repeats: repeats.clamp(1, self.repeats),
        }
    }
}

/// True if all tries at a rate failed.
fn is_given_up(unjudged: &[RateEvidence], rps: f64) -> bool {
    unjudged.iter().any(|one| one.rps == rps && one.tries >= MAX_TRIES)
}

/// Returns the lowest rate whose repeats together have the needed samples; windows hold a whole number of requests.
pub fn lowest_rate(samples: u64, repeats: u32, window_s: f64) -> f64 {
    samples.div_ceil(u64::from(repeats)) as f64 / window_s
}

/// Rounds to three significant digits, which reads well and is the same on every machine.
fn rounded(rps: f64) -> f64 {
    let digits = 2 - rps.max(1e-9).log10().floor() as i32;
    // A power of ten is exact only for a positive exponent: divide by it, or multiply.
    if digits >= 0 {
        let scale = 10_f64.powi(digits);
        (rps * scale).round() / scale
    } else {
        let scale = 10_f64.powi(-digits);
        (rps / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn search(lowest_rps: f64, highest_rps: f64, resolution: f64) -> Search {
        Search {
            start_rps: lowest_rps,
            lowest_rps,
            highest_rps,
            resolution,
            repeats: 5,
            samples: 368,
            window_s: 100.0,
        }
    }

    fn said(RateProbe { rps, repeats }: RateProbe, met: bool, certain: bool) -> RateEvidence {
        RateEvidence {
            rps,
            repeats,
            tries: 1,
            answer: if met {
                MeetsObjective::Met
            } else {
                MeetsObjective::NotMet
            },
            certain,
        }
    }

    /// Runs a search against an instrument that fails where `fails` says so, given a probe and its number of tries.
    fn run_in_vain(
        search: &Search,
        boundary: f64,
        mut fails: impl FnMut(RateProbe, u32) -> bool,
    ) -> (Vec<RateProbe>, Vec<RateEvidence>) {
        let (mut probes, mut judged): (Vec<RateProbe>, Vec<RateEvidence>) = (Vec::new(), Vec::new());
        while let Some(probe) = search.next(&judged) {
            probes.push(probe);
            // A run stops at `MAX_PROBES`; here it is followed to its end, which a mostly failing instrument delays.
            assert!(probes.len() < 10 * MAX_PROBES, "{probes:?}");
            let before = judged.iter().find(|one| one.rps == probe.rps);
            let tries = before.map_or(1, |one| one.tries + u32::from(one.answer == MeetsObjective::Unknown));
            assert!(tries <= MAX_TRIES, "{probe:?} again");
            let mut one = said(probe, probe.rps <= boundary, true);
            one.tries = tries;
            if fails(probe, tries) {
                (one.answer, one.certain) = (MeetsObjective::Unknown, false);
            }
            judged.retain(|one| one.rps != probe.rps);
            judged.push(one);
            judged.sort_by(|a, b| a.rps.total_cmp(&b.rps));
        }
        (probes, judged)
    }

    fn found_of(judged: &[RateEvidence]) -> (Option<f64>, Option<f64>) {
        let judged: Vec<RateEvidence> = judged
            .iter()
            .filter(|one| one.answer != MeetsObjective::Unknown)
            .copied()
            .collect();
        found(&judged)
    }

    #[test]
    fn an_instrument_that_fails_now_and_then_costs_time_and_nothing_else() {
        let mut calls = 0;
        let search = search(50.0, 10_000.0, 0.05);
        let (probes, judged) = run_in_vain(&search, 330.0, |_, _| {
            calls += 1;
            calls % 2 == 1
        });
        let (Some(met), Some(not_met)) = found_of(&judged) else {
            panic!("{judged:?}")
        };
        // If a rate was given up, the next rate bounds the gap; and rates have three digits.
        assert!(
            met <= 330.0 && not_met > 330.0 && not_met / met <= 1.061,
            "{met} {not_met}"
        );
        // Every second measurement has no answer: more than twice as many, and still no more than a search may take.
        assert!(probes.len() <= MAX_PROBES, "{probes:?}");
    }

    #[test]
    fn an_instrument_that_mostly_fails_ends_too() {
        let mut rng = ChaCha8Rng::seed_from_u64(11_640_575_292_740_474_851);
        let (probes, judged) = run_in_vain(&search(20.0, 20_000.0, 0.05), 12_453.99, |_, _| {
            rng.random_range(0.0..1.0) < 0.785
        });
        assert!(probes.len() > 2 * MAX_PROBES, "{}", probes.len());
        let (met, not_met) = found_of(&judged);
        assert!(met.is_none_or(|met| met <= 12_453.99) && not_met.is_none_or(|not_met| not_met > 12_453.99));
    }

    #[test]
    fn an_instrument_that_does_not_come_so_far_leaves_what_lies_above_unknown() {
        let search = search(50.0, 100_000.0, 0.05);
        let (probes, judged) = run_in_vain(&search, 50_000.0, |probe, _| probe.rps > 9_000.0);
        let (met, not_met) = found_of(&judged);
        assert_eq!(not_met, None);
        assert!(met.is_some_and(|met| met > 8_400.0 && met <= 9_000.0), "{met:?}");
        assert!(probes.len() < 40, "{probes:?}");
    }

    #[test]
    fn what_never_gives_an_answer_ends_soon_and_is_never_called_not_met() {
        let (probes, judged) = run_in_vain(&search(50.0, 100_000.0, 0.05), 1.0, |_, _| true);
        assert_eq!(found_of(&judged), (None, None));
        assert!(probes.len() <= 3 * MAX_TRIES as usize, "{probes:?}");
    }

    #[test]
    fn a_rate_that_gives_no_answer_is_passed_by_on_either_side() {
        // The first middle of the gap from 200 to 400.
        let (_, judged) = run_in_vain(&search(50.0, 10_000.0, 0.05), 330.0, |probe, _| probe.rps == 283.0);
        let (Some(met), Some(not_met)) = found_of(&judged) else {
            panic!("{judged:?}")
        };
        assert!(
            met <= 330.0 && not_met > 330.0 && not_met / met <= 1.05,
            "{met} {not_met}"
        );
    }

    /// Carries a search out; `judge` says of a probe whether it meets the objective, and whether for certain.
    fn run(
        search: &Search,
        mut judged: Vec<RateEvidence>,
        mut judge: impl FnMut(RateProbe) -> (bool, bool),
    ) -> (Vec<RateProbe>, Vec<RateEvidence>) {
        let mut probes = Vec::new();
        while let Some(probe) = search.next(&judged) {
            assert!(probes.len() < MAX_PROBES, "{probes:?}");
            assert!(
                (search.lowest_rps..=search.highest_rps).contains(&probe.rps),
                "{probe:?}"
            );
            let (met, certain) = judge(probe);
            judged.retain(|one| one.rps != probe.rps);
            judged.push(said(probe, met, certain));
            judged.sort_by(|a, b| a.rps.total_cmp(&b.rps));
            probes.push(probe);
        }
        (probes, judged)
    }

    fn found(judged: &[RateEvidence]) -> (Option<f64>, Option<f64>) {
        let cut = cut(judged);
        (
            cut.checked_sub(1).map(|last| judged[last].rps),
            judged.get(cut).map(|one| one.rps),
        )
    }

    #[test]
    fn doubles_bisects_and_repeats_the_boundary() {
        let (probes, judged) = run(&search(50.0, 10_000.0, 0.05), Vec::new(), |probe| {
            (probe.rps <= 330.0, true)
        });
        let rates: Vec<f64> = probes.iter().map(|probe| probe.rps).collect();
        assert_eq!(rates[..5], [50.0, 100.0, 200.0, 400.0, 283.0]);
        let (Some(met), Some(not_met)) = found(&judged) else {
            panic!("{judged:?}")
        };
        assert!(met <= 330.0 && not_met > 330.0 && not_met / met <= 1.05);
        let full: Vec<f64> = probes
            .iter()
            .filter(|probe| probe.repeats == 5)
            .map(|probe| probe.rps)
            .collect();
        assert_eq!(full, [met, not_met]);
    }

    #[test]
    fn ends_at_its_limits() {
        let (_, judged) = run(&search(50.0, 10_000.0, 0.05), Vec::new(), |_| (false, true));
        assert_eq!(found(&judged), (None, Some(50.0)));
        assert_eq!(judged[0].repeats, 5, "what is said in words has all repeats");
        let (_, judged) = run(&search(50.0, 330.5, 0.05), Vec::new(), |_| (true, true));
        assert_eq!(found(&judged), (Some(330.5), None));
        assert_eq!(judged.last().unwrap().repeats, 5);
    }

    #[test]
    fn what_is_known_already_is_not_measured_again() {
        let grid = [100.0, 200.0, 400.0].map(|rps| said(RateProbe { rps, repeats: 5 }, rps < 300.0, true));
        let (probes, judged) = run(&search(50.0, 10_000.0, 0.05), grid.to_vec(), |probe| {
            (probe.rps <= 330.0, true)
        });
        assert!(
            probes.iter().all(|probe| (200.0..400.0).contains(&probe.rps)),
            "{probes:?}"
        );
        assert!(
            found(&judged)
                .0
                .is_some_and(|met| met <= 330.0 && met * 1.05 >= 330.0 * 0.99)
        );
    }

    #[test]
    fn what_all_repeats_overturn_moves_the_boundary() {
        // A single repeat is too optimistic by a fifth.
        let (_, judged) = run(&search(50.0, 10_000.0, 0.05), Vec::new(), |probe| {
            (probe.rps <= if probe.repeats == 5 { 300.0 } else { 360.0 }, true)
        });
        let (Some(met), Some(not_met)) = found(&judged) else {
            panic!("{judged:?}")
        };
        assert!(
            met <= 300.0 && not_met > 300.0 && not_met / met < 1.06,
            "{met} {not_met}"
        );
    }

    #[test]
    fn looks_for_certainty_on_both_sides() {
        // Within a tenth of the boundary nothing is certain.
        let (_, judged) = run(&search(50.0, 10_000.0, 0.05), Vec::new(), |probe| {
            (probe.rps <= 330.0, (probe.rps / 330.0).ln().abs() > 0.1)
        });
        let certain = |met| {
            judged
                .iter()
                .filter(move |one| one.is_met() == met && one.certain && one.repeats == 5)
        };
        assert!(certain(true).any(|one| one.rps > 330.0 * 0.8), "{judged:?}");
        assert!(certain(false).any(|one| one.rps < 330.0 * 1.25), "{judged:?}");
    }

    #[test]
    fn a_low_rate_has_as_many_repeats_as_its_samples_need() {
        let search = Search {
            window_s: 1.0,
            ..search(lowest_rate(368, 5, 1.0), 1_000.0, 0.05)
        };
        assert_eq!(search.lowest_rps, 74.0);
        assert_eq!(search.next(&[]), Some(RateProbe { rps: 74.0, repeats: 5 }));
        assert_eq!(search.coarse(200.0).repeats, 2);
        assert_eq!(search.coarse(368.0).repeats, 1);
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [123.456, 99_960.0, 0.012_345, 1.0, 20_000.0].map(rounded);
        assert_eq!(rates, [123.0, 100_000.0, 0.0123, 1.0, 20_000.0]);
    }

    proptest! {
        #[test]
        fn brackets_any_boundary(
            boundary in 10.0_f64..20_000.0, lowest in 1.0_f64..100.0, start in 0.0_f64..30_000.0, resolution in 0.01_f64..0.2,
        ) {
            let search = Search { start_rps: start, ..search(lowest, 20_000.0, resolution) };
            let (_, judged) = run(&search, Vec::new(), |probe| (probe.rps <= boundary, true));
            match found(&judged) {
                (Some(met), Some(not_met)) => {
                    prop_assert!(met <= boundary && not_met > boundary);
                    prop_assert!(not_met / met <= 1.0 + resolution + 0.011, "{} {}", met, not_met);
                    prop_assert!(judged.iter().filter(|one| one.repeats == 5).count() >= 2);
                }
                (None, Some(not_met)) => prop_assert!(not_met > boundary && not_met == lowest),
                (Some(met), None) => prop_assert!(met == 20_000.0 && boundary >= 20_000.0),
                (None, None) => prop_assert!(false, "nothing was measured"),
            }
        }

        /// With a noisy server, whose answers are wrong with a probability that falls with the distance from the
        /// boundary, the search ends near the boundary.
        #[test]
        fn noise_leaves_it_near(boundary in 100.0_f64..5_000.0, seed: u64) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (_, judged) = run(&search(20.0, 20_000.0, 0.05), Vec::new(), |probe| {
                let distance = (probe.rps / boundary).ln() * f64::from(probe.repeats).sqrt();
                let met = 1.0 / (1.0 + (distance / 0.03).exp());
                (rng.random_range(0.0..1.0) < met, distance.abs() > 0.1)
            });
            let (Some(met), Some(not_met)) = found(&judged) else { return Err(TestCaseError::fail("nothing found")) };
            prop_assert!((met / boundary).ln().abs() < 0.3 && (not_met / boundary).ln().abs() < 0.3, "{} {}", met, not_met);
        }

        /// With an instrument that fails at random and a clear boundary, the search ends on either side of the
        /// boundary.
        #[test]
        fn failures_at_random_never_move_the_boundary(boundary in 20.0_f64..15_000.0, share in 0.0_f64..0.9, seed: u64) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (_, judged) = run_in_vain(&search(20.0, 20_000.0, 0.05), boundary, |_, _| rng.random_range(0.0..1.0) < share);
            let (met, not_met) = found_of(&judged);
            prop_assert!(met.is_none_or(|met| met <= boundary) && not_met.is_none_or(|not_met| not_met > boundary));
        }

        /// The search ends for any answers: each probe is a new rate, or one that had fewer repeats.
        #[test]
        fn ends_whatever_is_told(answers in prop::collection::vec(any::<(bool, bool)>(), MAX_PROBES)) {
            let mut answers = answers.into_iter();
            let mut judged: Vec<RateEvidence> = Vec::new();
            let search = search(10.0, 5_000.0, 0.05);
            while let Some(probe) = search.next(&judged) {
                let Some((met, certain)) = answers.next() else { break };
                let before = judged.iter().find(|one| one.rps == probe.rps).map_or(0, |one| one.repeats);
                prop_assert!(probe.repeats > before);
                judged.retain(|one| one.rps != probe.rps);
                judged.push(said(probe, met, certain));
                judged.sort_by(|a, b| a.rps.total_cmp(&b.rps));
            }
        }
    }
}
