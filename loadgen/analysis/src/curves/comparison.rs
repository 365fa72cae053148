//! Decisions on the figures of two runs: worse, better, equivalent, or undecided.
//!
//! In: figures of pairs of points ([`super::per_repeat`]). Out: a decision for each. Pure. Knows nothing of wording.
//!
//! All tests of all points are one family (`levels`), and the interval beside a decision has the level of that
//! decision. A percentile has two tests: its ratio, and the share of requests slower than a threshold that both runs
//! share. If runs do not differ, each direction is called wrongly in at most 5 % of comparisons: intervals leave out
//! 10 %, which is also the level of the two one-sided tests of equivalence (D. J. Schuirmann, J. Pharmacokin. Biopharm.
//! 15, 1987).

use crate::record::Interval;
use crate::statistics::sections::Estimate;
use crate::statistics::student::{beyond, t_two_sided};
use serde::Serialize;
use std::ops::RangeInclusive;

/// Share that the interval of a single figure leaves out, both sides together.
pub const OUTSIDE: f64 = 0.10;
/// Default share within which two figures are equivalent.
pub const WITHIN: f64 = 0.05;
/// Probability of missing the smallest difference that could have been found.
const MISS_PROBABILITY: f64 = 0.10;

/// Scale on which a figure is compared, and the direction that is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Ratio; more is worse.
    MoreIsWorse,
    /// Ratio; less is worse.
    LessIsWorse,
    /// Difference as a share of all requests; more is worse.
    Share,
}

/// One figure of a point in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Name: `p50`, `p95`, `p99`, `mean`, `errors`, `good/s` or `$/10k`.
    pub what: &'static str,
    /// Scale of the comparison.
    pub scale: Scale,
    /// Values in A and in B, in the figure's unit.
    pub values: Option<(f64, f64)>,
    /// Logarithm of B over A, or B less A for a share; `None` if the repeats do not determine it.
    pub estimate: Option<Estimate>,
    /// Share of slow requests; only for percentiles.
    pub slow: Option<SlowShare>,
}

/// Share of each run's requests that are slower than a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowShare {
    /// Threshold in microseconds: the geometric mean of the percentile in A and in B.
    pub beyond_us: f64,
    /// Shares in A and in B.
    pub shares: (f64, f64),
    /// Difference of B less A.
    pub estimate: Estimate,
}

impl Figure {
    /// Creates a figure that at least one of the runs lacks.
    pub(super) const fn unknown(what: &'static str, scale: Scale) -> Self {
        Self {
            what,
            scale,
            values: None,
            estimate: None,
            slow: None,
        }
    }

    /// Returns the estimates that need a test, in their order: a difference of 0 without variation needs none.
    fn tested(&self) -> [Option<Estimate>; 2] {
        let can_differ = |estimate: &Estimate| estimate.error > 0.0 || estimate.value != 0.0;
        [self.estimate, self.slow.map(|slow| slow.estimate)].map(|estimate| estimate.filter(can_differ))
    }
}

/// Decision on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Certainly worse, by more than the equivalence margin.
    Worse,
    /// Certainly better, by more than the equivalence margin.
    Better,
    /// Certainly within the equivalence margin.
    Equivalent,
    /// None of the above is certain.
    Undecided,
}

/// Figure with its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// Interval of the decision: of B over A, or of B less A for a share.
    pub interval: Option<Interval>,
    /// Smallest change that nine of ten comparisons would find: as a share of A, or of all requests.
    pub smallest: Option<f64>,
    /// Decision on the figure.
    pub decision: Decision,
}

/// Decides the figures of all points together. `within` is the equivalence margin as a share; `error_share` is that of
/// failed shares.
pub fn decide(points: &[Vec<Figure>], within: f64, error_share: f64) -> Vec<Vec<Decided>> {
    let tests: Vec<Vec<f64>> = points
        .iter()
        .map(|figures| figures.iter().flat_map(Figure::tested).flatten().map(p_value).collect())
        .collect();
    let family = tests.iter().filter(|tests| !tests.is_empty()).count();
    points
        .iter()
        .zip(levels(&tests, OUTSIDE))
        .map(|(figures, levels)| {
            let least = OUTSIDE / (family * levels.len()).max(1) as f64;
            let mut levels = levels.into_iter();
            let one = |figure: &Figure| {
                let mut leveled = |estimate: Estimate| Some((estimate, levels.next()?));
                let margin = match figure.scale {
                    Scale::Share => error_share,
                    Scale::MoreIsWorse | Scale::LessIsWorse => within,
                };
                let tested = figure.tested().map(|tested| tested.and_then(&mut leveled));
                decided(figure, tested, least, margin)
            };
            figures.iter().map(one).collect()
        })
        .collect()
}

/// Decides one figure by its estimates with their levels. `least` is the level at which a change must be found in the
/// worst case.
fn decided(figure: &Figure, [own, slow]: [Option<(Estimate, f64)>; 2], least: f64, within: f64) -> Decided {
    let is_share = figure.scale == Scale::Share;
    let equivalent = match is_share {
        true => -within..=within,
        false => (1.0 - within).ln()..=(1.0 + within).ln(),
    };
    // A percentile is decided by the share of slow requests if it moved by more than the equivalence margin itself.
    let moved = figure.values.map_or(0.0, |(a, b)| (b / a).ln());
    let slow = slow.map(|(estimate, level)| Interval {
        value: moved,
        ..estimate.interval(level)
    });
    let by_share = slow.map(|slow| judge(slow, &equivalent, false));
    let shown = |interval: Interval| {
        if is_share { interval } else { interval.map(f64::exp) }
    };
    let Some((estimate, level)) = own else {
        return Decided {
            interval: figure.estimate.map(|estimate| shown(estimate.interval(OUTSIDE))),
            smallest: None,
            decision: match by_share {
                Some(decision @ (Decision::Worse | Decision::Better)) => decision,
                // Equal in every repeat.
                _ if figure.estimate.is_some() => Decision::Equivalent,
                _ => Decision::Undecided,
            },
        };
    };
    let interval = estimate.interval(level);
    let detectable = t_two_sided(least, estimate.freedom) + t_two_sided(2.0 * MISS_PROBABILITY, estimate.freedom);
    let detectable = detectable * estimate.error;
    let by_value = judge(interval, &equivalent, figure.scale == Scale::LessIsWorse);
    Decided {
        interval: Some(shown(interval)),
        smallest: Some(if is_share { detectable } else { detectable.exp_m1() }.max(within)),
        decision: match (by_value, by_share) {
            (Decision::Worse, _) | (_, Some(Decision::Worse)) => Decision::Worse,
            (Decision::Better, _) | (_, Some(Decision::Better)) => Decision::Better,
            _ => by_value,
        },
    }
}

/// Decides by an interval and an equivalence margin on the scale of the estimate.
fn judge(interval: Interval, equivalent: &RangeInclusive<f64>, less_is_worse: bool) -> Decision {
    let (up, down) = match less_is_worse {
        true => (Decision::Better, Decision::Worse),
        false => (Decision::Worse, Decision::Better),
    };
    if interval.lo > 0.0 && interval.value > *equivalent.end() {
        up
    } else if interval.hi < 0.0 && interval.value < *equivalent.start() {
        down
    } else if equivalent.contains(&interval.lo) && equivalent.contains(&interval.hi) {
        Decision::Equivalent
    } else {
        Decision::Undecided
    }
}

/// Two-sided p-value of no difference.
fn p_value(estimate: Estimate) -> f64 {
    match estimate.error {
        0.0 => 0.0,
        error => beyond(estimate.value / error, estimate.freedom),
    }
}

/// Compares two highest rates by the intervals of their boundaries. These are intervals of measured rates without a
/// level, so they are not part of the family.
pub fn highest_rates(a: Interval, b: Interval, within: f64) -> Decision {
    if b.hi < a.lo && b.value < a.value * (1.0 - within) {
        Decision::Worse
    } else if b.lo > a.hi && b.value > a.value * (1.0 + within) {
        Decision::Better
    } else if b.hi <= a.lo * (1.0 + within) && b.lo >= a.hi * (1.0 - within) {
        Decision::Equivalent
    } else {
        Decision::Undecided
    }
}

/// Returns the level that the interval of each test leaves out, if all tests together leave out `outside`. The interval
/// of a test that passes excludes the null hypothesis, and no other does.
pub(super) fn levels(points: &[Vec<f64>], outside: f64) -> Vec<Vec<f64>> {
    let adjusted: Vec<Vec<f64>> = points.iter().map(|tests| adjusted(tests)).collect();
    let order = (0..points.len()).flat_map(|point| (0..points[point].len()).map(move |test| (point, test)));
    let mut order: Vec<(usize, usize)> = order.collect();
    order.sort_by(|a, b| adjusted[a.0][a.1].total_cmp(&adjusted[b.0][b.1]));
    let mut open: Vec<usize> = points.iter().map(Vec::len).collect();
    let mut levels: Vec<Vec<f64>> = points.iter().map(|tests| vec![0.0; tests.len()]).collect();
    let mut level = outside;
    let mut passes = true;
    for (point, test) in order {
        let (p, adjusted) = (points[point][test], adjusted[point][test]);
        if passes {
            level = outside / open.iter().filter(|tests| **tests > 0).count() as f64;
            passes = adjusted <= level;
        }
        levels[point][test] = match passes && p > 0.0 {
            true => level * (p / adjusted),
            false => level / points[point].len() as f64,
        };
        open[point] -= usize::from(passes);
    }
    levels
}

/// Returns a point's p-values adjusted for each other: for each test the largest Simes p-value over all sets of tests
/// that contain it. Among the sets of one size that is the set with the largest other p-values.
fn adjusted(tests: &[f64]) -> Vec<f64> {
    let of = |test: usize| {
        let mut others = tests.to_vec();
        let own = others.remove(test);
        others.sort_by(|a, b| b.total_cmp(a));
        let all = (0..=others.len()).map(|count| simes(own, &others[..count]));
        all.fold(own, f64::max)
    };
    (0..tests.len()).map(of).collect()
}

/// P-value of the hypothesis that none of the tests found anything.
fn simes(own: f64, others: &[f64]) -> f64 {
    let mut all = others.to_vec();
    all.push(own);
    all.sort_by(f64::total_cmp);
    let count = all.len() as f64;
    let scaled = all.iter().zip(1_u32..).map(|(p, rank)| p * count / f64::from(rank));
    scaled.fold(1.0, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn estimate(value: f64, error: f64) -> Estimate {
        Estimate {
            value,
            error,
            freedom: 9.0,
        }
    }

    fn figure(value: f64, error: f64) -> Figure {
        Figure {
            estimate: Some(estimate(value, error)),
            ..Figure::unknown("p50", Scale::MoreIsWorse)
        }
    }

    fn alone(figures: &[Figure]) -> Vec<Decided> {
        decide(&[figures.to_vec()], WITHIN, 0.001).remove(0)
    }

    fn decisions(figures: &[Figure]) -> Vec<Decision> {
        alone(figures).iter().map(|decided| decided.decision).collect()
    }

    #[test]
    fn the_outcomes_of_a_single_figure() {
        use Decision::{Better, Equivalent, Undecided, Worse};
        for (value, error, expected) in [
            (0.18, 0.03, Worse),
            (-0.18, 0.03, Better),
            (0.0, 0.01, Equivalent),
            (0.02, 0.005, Equivalent),
            // Certain, but neither certainly relevant nor certainly small.
            (0.04, 0.01, Undecided),
            // An unknown difference is not an equivalence.
            (0.0, 0.1, Undecided),
            (0.215, 0.15, Undecided),
        ] {
            assert_eq!(decisions(&[figure(value, error)]), [expected], "{value} {error}");
        }
        let rate = Figure {
            scale: Scale::LessIsWorse,
            ..figure(-0.18, 0.03)
        };
        assert_eq!(decisions(&[rate]), [Worse]);
    }

    #[test]
    fn among_many_points_more_is_asked_and_the_interval_says_what_the_decision_does() {
        let one = figure(0.095, 0.04);
        assert_eq!(decisions(std::slice::from_ref(&one)), [Decision::Worse]);
        let mut many = vec![vec![one]];
        many.extend((0..30).map(|_| vec![figure(0.0, 0.04)]));
        let decided = decide(&many, WITHIN, 0.001);
        assert_eq!(decided[0][0].decision, Decision::Undecided);
        assert!(decided[0][0].interval.unwrap().lo < 1.0 && decided[0][0].smallest.unwrap() > 0.15);
        // After the first has passed, the second has a weaker level.
        let two = [figure(0.5, 0.01), figure(0.085, 0.04)];
        assert_eq!(decisions(&two), [Decision::Worse, Decision::Worse]);
    }

    #[test]
    fn nothing_to_decide_is_equivalent_and_nothing_known_undecided() {
        let unknown = Figure::unknown("p99", Scale::MoreIsWorse);
        let both = [figure(0.0, 0.0), unknown.clone()];
        assert_eq!(decisions(&both), [Decision::Equivalent, Decision::Undecided]);
        // Neither is part of the family.
        let beside = alone(&[figure(0.0, 0.0), unknown, figure(0.1, 0.1)]);
        assert_eq!(beside[2], alone(&[figure(0.1, 0.1)])[0]);
    }

    #[test]
    fn a_percentile_is_worse_by_its_slow_requests_where_its_repeats_scatter() {
        let slow = |value, error, values| Figure {
            values: Some(values),
            slow: Some(SlowShare {
                beyond_us: 100.0,
                shares: (0.005, 0.005 + value),
                estimate: estimate(value, error),
            }),
            ..figure(1.2, 0.9)
        };
        let jump = (33_000.0, 319_000.0);
        assert_eq!(decisions(&[slow(0.01, 0.002, jump)]), [Decision::Worse]);
        assert_eq!(decisions(&[slow(0.01, 0.01, jump)]), [Decision::Undecided]);
        // A share that certainly grew decides nothing while the percentile has not moved.
        assert_eq!(
            decisions(&[slow(0.01, 0.002, (33_000.0, 34_000.0))]),
            [Decision::Undecided]
        );
    }

    #[test]
    fn failed_shares_are_compared_by_their_difference() {
        let errors = |value, error| Figure {
            scale: Scale::Share,
            ..figure(value, error)
        };
        assert_eq!(decisions(&[errors(0.05, 0.01)]), [Decision::Worse]);
        assert_eq!(decisions(&[errors(0.0001, 0.0001)]), [Decision::Equivalent]);
        assert_eq!(decisions(&[errors(0.004, 0.004)]), [Decision::Undecided]);
    }

    #[test]
    fn highest_rates_by_their_boundaries() {
        let rate = |value: f64, lo, hi| Interval { value, lo, hi };
        let a = rate(400.0, 390.0, 410.0);
        assert_eq!(highest_rates(a, rate(300.0, 290.0, 310.0), 0.05), Decision::Worse);
        assert_eq!(highest_rates(a, rate(500.0, 490.0, 510.0), 0.05), Decision::Better);
        assert_eq!(highest_rates(a, rate(400.0, 395.0, 405.0), 0.05), Decision::Equivalent);
        assert_eq!(highest_rates(a, rate(380.0, 300.0, 450.0), 0.05), Decision::Undecided);
    }

    proptest! {
        /// A decision and the interval beside it never contradict each other.
        #[test]
        fn decisions_and_intervals_agree(all in prop::collection::vec((-0.5_f64..0.5, 0.001_f64..0.3), 1..12)) {
            let figures: Vec<Figure> = all.iter().map(|&(value, error)| figure(value, error)).collect();
            for decided in alone(&figures) {
                let interval = decided.interval.unwrap();
                match decided.decision {
                    Decision::Worse => prop_assert!(interval.lo > 1.0),
                    Decision::Better => prop_assert!(interval.hi < 1.0),
                    Decision::Equivalent => prop_assert!(interval.lo >= 0.95 - 1e-9 && interval.hi <= 1.05 + 1e-9),
                    Decision::Undecided => {}
                }
            }
        }
    }

    #[test]
    fn one_test_has_the_whole_level_and_points_share_it() {
        assert_eq!(levels(&[vec![0.04]], 0.1), [[0.1]]);
        assert_eq!(
            levels(&[vec![], vec![0.5], vec![0.9]], 0.1),
            [vec![], vec![0.05], vec![0.05]]
        );
        // The second point has the whole level after the first has passed.
        assert_eq!(levels(&[vec![0.01], vec![0.09]], 0.1), [[0.05], [0.1]]);
    }

    #[test]
    fn tests_of_one_point_support_each_other_and_those_of_other_points_do_not() {
        let passes = |p: f64, level: f64| p <= level;
        let together = levels(&[vec![0.09, 0.08, 0.07]], 0.1);
        assert!(
            together[0]
                .iter()
                .zip([0.09, 0.08, 0.07])
                .all(|(level, p)| passes(p, *level))
        );
        let apart = levels(&[vec![0.09], vec![0.08], vec![0.07]], 0.1);
        assert!(
            apart
                .iter()
                .zip([0.09, 0.08, 0.07])
                .all(|(level, p)| !passes(p, level[0]))
        );
    }

    proptest! {
        /// Each level is at least Bonferroni's, and rejections within a point are at least Holm's.
        #[test]
        fn levels_lie_between_bonferroni_and_the_whole(p in prop::collection::vec(prop::collection::vec(1e-6_f64..1.0, 1..6), 1..5)) {
            let count: usize = p.len();
            for (tests, levels) in p.iter().zip(levels(&p, 0.1)) {
                for (p, level) in tests.iter().zip(levels) {
                    prop_assert!(level <= 0.1 + 1e-12);
                    prop_assert!(level >= 0.1 / (count * tests.len()) as f64 - 1e-12);
                    prop_assert!(*p > level || *p <= 0.1);
                }
            }
        }
    }
}
