//! What two runs say of each other: worse, better, equivalent, or undecided.
//!
//! In: pairs of points that both are valid. Out: a decision for each of their figures. Pure. Knows nothing of how it is said.
//!
//! Figures are compared by their repeats. Where the repeats of two points have the same seeds they got the same arrivals and
//! keys and are taken in pairs (Student's t of the differences); otherwise the runs are taken for independent (Welch). All
//! figures of all points are one family: the one with the smallest p-value must pass at its `m`-th part of the level, the
//! next at the `m - 1`-th and so on (S. Holm, Scand. J. Statist. 6, 1979), and the interval beside a decision is of just the
//! level that it was decided at. Of runs that do not differ each side is wrongly called in at most 5 %: intervals leave
//! out 10 %, which is also the level of the two one-sided tests of equivalence (D. J. Schuirmann, J. Pharmacokin. Biopharm.
//! 15, 1987).

use super::curve::difference;
use crate::costs::cost;
use crate::record::{Interval, Point, Pricing, Repeat};
use crate::statistics::beta;
use crate::statistics::sections::{Estimate, Pairing, of_means};
use crate::statistics::student::t_two_sided;
use crate::validity::disturbance::counted;
use std::ops::RangeInclusive;

/// What intervals leave out, both sides together, before Holm.
pub const OUTSIDE: f64 = 0.10;
/// Two figures that differ by no more than this share are equivalent, unless said otherwise.
pub const WITHIN: f64 = 0.05;
/// What the smallest difference that could have been found would have been missed with.
const MISSED: f64 = 0.10;

/// How a figure is compared, and which way is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// By its ratio; more is worse.
    MoreIsWorse,
    /// By its ratio; less is worse.
    LessIsWorse,
    /// By its difference as a share of all requests; more is worse.
    Share,
}

/// One figure of a point in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// `p50`, `good/s`, …
    pub what: &'static str,
    /// How it is compared.
    pub scale: Scale,
    /// In A and in B, in its own unit.
    pub values: Option<(f64, f64)>,
    /// The logarithm of B over A, or B less A for a share; `None` where the repeats cannot tell.
    pub estimate: Option<Estimate>,
}

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Certainly worse, and by more than what counts as equivalent.
    Worse,
    /// Certainly better, and by more than that.
    Better,
    /// Certainly within what counts as equivalent.
    Equivalent,
    /// None of these is certain.
    Undecided,
}

/// A figure with its decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The interval that it was decided by: of B over A, or of B less A for a share.
    pub interval: Option<Interval>,
    /// The smallest change that would have been found in nine of ten comparisons: as a share of A, or of all requests.
    pub smallest: Option<f64>,
    /// The decision.
    pub decision: Decision,
}

/// Whether the repeats of two points were made on the same arrivals: those that both have by their index have the same
/// seeds, and there are at least two.
#[must_use]
pub fn pairing(a: &Point, b: &Point) -> Pairing {
    let (counted_a, counted_b) = (counted(&a.repeats), counted(&b.repeats));
    let common = pairs(&counted_a, &counted_b);
    if common.len() >= 2 && common.iter().all(|(a, b)| a.seed == b.seed) {
        Pairing::ByRepeat
    } else {
        Pairing::Independent
    }
}

fn pairs<'a>(a: &'a [Repeat], b: &'a [Repeat]) -> Vec<(&'a Repeat, &'a Repeat)> {
    let of = |index: u32| b.iter().find(|repeat| repeat.index == index);
    a.iter()
        .filter_map(|repeat| Some((repeat, of(repeat.index)?)))
        .collect()
}

/// The figures of two points that both are valid; costs where both runs have prices.
#[must_use]
pub fn figures(a: &Point, b: &Point, pricing: Option<(&Pricing, &Pricing)>) -> Vec<Figure> {
    let pairing = pairing(a, b);
    let mut figures: Vec<Figure> = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)]
        .into_iter()
        .map(|(what, quantile)| {
            let found = difference(a, b, quantile, pairing);
            Figure {
                what,
                scale: Scale::MoreIsWorse,
                values: percentile(a, what).zip(percentile(b, what)),
                estimate: found.map(|found| found.log_ratio),
            }
        })
        .collect();
    figures.push(errors(a, b));
    let rates = |point: &Point| per_repeat(point, |repeat| Some(repeat.achieved_rps.max(1e-9).ln()));
    figures.extend(means(
        "good/s",
        Scale::LessIsWorse,
        pairing,
        PerRepeatOfBoth {
            a: rates(a),
            b: rates(b),
        },
    ));
    if let Some((prices_a, prices_b)) = pricing {
        let usd = |point: &Point, pricing: &Pricing| {
            per_repeat(point, |repeat| {
                let usd: f64 = cost::parts(&point.factors, repeat, pricing)?.iter().sum();
                (usd > 0.0).then(|| usd.ln())
            })
        };
        let usd = PerRepeatOfBoth {
            a: usd(a, prices_a),
            b: usd(b, prices_b),
        };
        figures.extend(means("$/10k", Scale::MoreIsWorse, pairing, usd));
    }
    figures
}

fn percentile(point: &Point, what: &str) -> Option<f64> {
    let summary = point.summary.as_ref()?;
    let interval = match what {
        "p50" => summary.p50_us,
        "p95" => summary.p95_us,
        _ => summary.p99_us,
    };
    interval.map(|interval| interval.value)
}

/// A figure of every repeat with its index; `None` where one has none.
fn per_repeat(point: &Point, of: impl Fn(&Repeat) -> Option<f64>) -> Option<Vec<(u32, f64)>> {
    counted(&point.repeats)
        .iter()
        .map(|repeat| Some((repeat.index, of(repeat)?)))
        .collect()
}

type PerRepeat = Option<Vec<(u32, f64)>>;

/// A figure of every repeat of two points.
struct PerRepeatOfBoth {
    a: PerRepeat,
    b: PerRepeat,
}

/// A figure that every repeat has one of, by the logarithm.
fn means(what: &'static str, scale: Scale, pairing: Pairing, of: PerRepeatOfBoth) -> Option<Figure> {
    let (mut of_a, mut of_b) = (of.a?, of.b?);
    if pairing == Pairing::ByRepeat {
        let known = |all: &[(u32, f64)], index: u32| all.iter().any(|(other, _)| *other == index);
        let (all_a, all_b) = (of_a.clone(), of_b.clone());
        of_a.retain(|(index, _)| known(&all_b, *index));
        of_b.retain(|(index, _)| known(&all_a, *index));
    }
    let sorted = |mut all: Vec<(u32, f64)>| {
        all.sort_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, value)| value).collect::<Vec<f64>>()
    };
    let (of_a, of_b) = (sorted(of_a), sorted(of_b));
    let mean = |values: &[f64]| values.iter().map(|value| value.exp()).sum::<f64>() / values.len().max(1) as f64;
    Some(Figure {
        what,
        scale,
        values: Some((mean(&of_a), mean(&of_b))),
        estimate: of_means(&of_a, &of_b, pairing),
    })
}

/// Failed shares of the requests. Of points of which none failed nothing has to be decided.
#[must_use]
pub fn errors(a: &Point, b: &Point) -> Figure {
    let shares = |point: &Point| {
        let share = |repeat: &Repeat| repeat.errors.values().sum::<u64>() as f64 / repeat.scheduled.max(1) as f64;
        counted(&point.repeats).iter().map(share).collect::<Vec<f64>>()
    };
    let (of_a, of_b) = (shares(a), shares(b));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    Figure {
        what: "errors",
        scale: Scale::Share,
        values: Some((mean(&of_a), mean(&of_b))),
        // What failed in one run has nothing to do with what failed in the other.
        estimate: of_means(&of_a, &of_b, Pairing::Independent),
    }
}

/// Decides figures together. `within`: the share by which two may differ and be equivalent; `error_share`: the same for
/// failed shares.
#[must_use]
pub fn decide(figures: &[Figure], within: f64, error_share: f64) -> Vec<Decided> {
    let levels = levels(figures);
    let family = levels.iter().flatten().count().max(1) as f64;
    figures
        .iter()
        .zip(levels)
        .map(|(figure, level)| {
            let Some((estimate, level)) = figure.estimate.zip(level) else {
                return undecidable(figure);
            };
            let found = t_two_sided(OUTSIDE / family, estimate.freedom) + t_two_sided(2.0 * MISSED, estimate.freedom);
            let found = found * estimate.error;
            let interval = estimate.interval(level);
            match figure.scale {
                Scale::Share => Decided {
                    interval: Some(interval),
                    smallest: Some(found.max(error_share)),
                    decision: judge(interval, &(-error_share..=error_share), false),
                },
                scale => Decided {
                    interval: Some(super::curve::exponential(interval)),
                    smallest: Some(found.exp_m1().max(within)),
                    decision: judge(
                        interval,
                        &((1.0 - within).ln()..=(1.0 + within).ln()),
                        scale == Scale::LessIsWorse,
                    ),
                },
            }
        })
        .collect()
}

/// A figure without an estimate: equivalent where there is nothing that could differ.
fn undecidable(figure: &Figure) -> Decided {
    let nothing = figure
        .estimate
        .is_some_and(|estimate| estimate.error == 0.0 && estimate.value == 0.0);
    Decided {
        interval: None,
        smallest: None,
        decision: if nothing {
            Decision::Equivalent
        } else {
            Decision::Undecided
        },
    }
}

/// By an interval on the scale of the estimate, and what is equivalent on it.
fn judge(interval: Interval, equivalent: &RangeInclusive<f64>, less_is_worse: bool) -> Decision {
    let (up, down) = if less_is_worse {
        (Decision::Better, Decision::Worse)
    } else {
        (Decision::Worse, Decision::Better)
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

/// What the interval of each figure leaves out, after Holm; `None` for those without an estimate and those that cannot
/// differ.
fn levels(figures: &[Figure]) -> Vec<Option<f64>> {
    let mut tested: Vec<(usize, f64)> = figures
        .iter()
        .enumerate()
        .filter_map(|(index, figure)| Some((index, figure.estimate?)))
        .filter(|(_, estimate)| estimate.error > 0.0 || estimate.value != 0.0)
        .map(|(index, estimate)| (index, p_value(estimate)))
        .collect();
    tested.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut levels = vec![None; figures.len()];
    let mut level = None;
    let mut stopped = false;
    for (place, &(index, p)) in tested.iter().enumerate() {
        if !stopped {
            let own = OUTSIDE / (tested.len() - place) as f64;
            level = Some(own);
            stopped = p > own;
        }
        levels[index] = level;
    }
    levels
}

/// Of no difference, both sides.
fn p_value(estimate: Estimate) -> f64 {
    if estimate.error == 0.0 {
        return 0.0;
    }
    let t = estimate.value / estimate.error;
    let freedom = estimate.freedom.max(1.0);
    beta::regularised(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// Two highest rates with what is known of their boundaries. Their intervals are of measured rates and not of a level, so
/// that they stand beside the family.
#[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(value: f64, error: f64) -> Figure {
        Figure {
            what: "p50",
            scale: Scale::MoreIsWorse,
            values: None,
            estimate: Some(Estimate {
                value,
                error,
                freedom: 9.0,
            }),
        }
    }

    fn decisions(figures: &[Figure]) -> Vec<Decision> {
        decide(figures, WITHIN, 0.001)
            .iter()
            .map(|decided| decided.decision)
            .collect()
    }

    #[test]
    fn the_outcomes_of_a_single_figure() {
        use Decision::{Better, Equivalent, Undecided, Worse};
        for (value, error, expected) in [
            (0.18, 0.03, Worse),
            (-0.18, 0.03, Better),
            (0.0, 0.01, Equivalent),
            (0.02, 0.005, Equivalent),
            // Certain, and of no size that is said to matter, but not certainly so small.
            (0.04, 0.01, Undecided),
            // Cannot tell is not the same as the same.
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
    fn among_many_more_is_asked_and_the_interval_says_what_the_decision_does() {
        let alone = figure(0.095, 0.04);
        assert_eq!(decisions(std::slice::from_ref(&alone)), [Decision::Worse]);
        let mut many = vec![alone];
        many.extend((0..30).map(|_| figure(0.0, 0.04)));
        let decided = decide(&many, WITHIN, 0.001);
        assert_eq!(decided[0].decision, Decision::Undecided);
        assert!(decided[0].interval.unwrap().lo < 1.0 && decided[0].smallest.unwrap() > 0.15);
        // After the first has passed, the second is asked for less.
        let two = [figure(0.5, 0.01), figure(0.085, 0.04)];
        assert_eq!(decisions(&two), [Decision::Worse, Decision::Worse]);
    }

    #[test]
    fn nothing_to_decide_is_equivalent_and_nothing_known_undecided() {
        let unknown = Figure {
            estimate: None,
            ..figure(0.0, 0.0)
        };
        assert_eq!(
            decisions(&[figure(0.0, 0.0), unknown]),
            [Decision::Equivalent, Decision::Undecided]
        );
        // Neither takes part in the family.
        assert_eq!(levels(&[figure(0.0, 0.0), figure(0.1, 0.1)]), [None, Some(OUTSIDE)]);
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
            for decided in decide(&figures, WITHIN, 0.001) {
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
}
