//! Demands, and table sizes, at which another variant becomes cheaper.
//!
//! In: an answer's question and two of its variants, with the parts of their months. Out: the nearest demands, below
//! and above the question's, at which the other costs less; the nearest sizes likewise. Each instance is assumed to
//! carry its measured rate. Knows nothing of latencies.

use super::over_demand::in_steps;
use crate::record::{BySize, CostTerms, Question, Ranked};

/// Range of demands searched on either side of the question's demand, as a factor.
const SEARCH_FACTOR: f64 = 100.0;
/// Maximum further instances searched one by one.
const MAX_INSTANCES: f64 = 10_000.0;

/// Nearest ranges in which another variant costs less, of peak demands in requests per second, or of sizes as multiples
/// of the measured table.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Crossovers {
    /// Range below the question's value; `None` if the other never costs less there.
    pub below: Option<CheaperRange>,
    /// Range above the question's value; `None` if the other never costs less there.
    pub above: Option<CheaperRange>,
}

/// Range of demands or sizes; an absent end lies beyond the values searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheaperRange {
    /// Lower end.
    pub from: Option<f64>,
    /// Upper end.
    pub to: Option<f64>,
}

/// Returns the demands at which `other` costs less than `best`, within a factor of 100 of the question's demand; `None`
/// if one of them has no month, or the question no demand.
pub fn crossovers(question: &Question, best: &Ranked, other: &Ranked) -> Option<Crossovers> {
    let peak_rps = question.demand?.peak_rps;
    let ends = [peak_rps / SEARCH_FACTOR, peak_rps, peak_rps * SEARCH_FACTOR];
    let [best, other] = [best, other].map(|ranked| in_steps(question, ranked, &ends, MAX_INSTANCES));
    (!best.is_empty() && !other.is_empty()).then(|| nearest(&best, &other, peak_rps))
}

/// Returns the table sizes at which `other` costs less than `best`, as multiples of the measured table, from 0 to 1,000
/// and up to the largest that both can hold, which is an end. `None` if the prices of one do not depend on size.
pub fn crossovers_by_size(best: (&Ranked, &CostTerms), other: (&Ranked, &CostTerms)) -> Option<Crossovers> {
    let largest = |terms: &CostTerms| terms.by_size.as_ref().map(BySize::largest);
    let largest = largest(best.1)?.min(largest(other.1)?);
    let [best, other] = [best, other].map(|(ranked, terms)| over_size(ranked, terms, largest));
    (!best.is_empty() && !other.is_empty()).then(|| {
        let mut crossovers = nearest(&best, &other, 1.0);
        if largest < BySize::MAX_TIMES
            && let Some(above) = &mut crossovers.above
        {
            above.to = above.to.or(Some(largest));
        }
        crossovers
    })
}

/// Returns the ranges nearest to `origin` in which one curve runs below another. Both are linear between points, and
/// step where two points have one abscissa.
fn nearest(best: &[(f64, f64)], other: &[(f64, f64)], origin: f64) -> Crossovers {
    let mut ends: Vec<f64> = best.iter().chain(other).map(|(at, _)| *at).collect();
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    // Between two of these both months are linear, without a step.
    let segments = ends.windows(2).map(|ends| (ends[0], ends[1]));
    let mut cheaper: Vec<(f64, f64)> = Vec::new();
    for (low, high) in segments.filter_map(|(low, high)| cheaper_in(best, other, low, high)) {
        match cheaper.last_mut().filter(|(_, end)| *end == low) {
            Some((_, end)) => *end = high,
            None => cheaper.push((low, high)),
        }
    }
    let below = cheaper.iter().rfind(|(low, _)| *low < origin);
    let above = cheaper.iter().find(|(_, high)| *high > origin);
    Crossovers {
        below: below.map(|&(low, high)| CheaperRange {
            from: (low > ends[0]).then_some(low),
            to: Some(high.min(origin)),
        }),
        above: above.map(|&(low, high)| CheaperRange {
            from: Some(low.max(origin)),
            to: (high < ends[ends.len() - 1]).then_some(high),
        }),
    }
}

/// Returns the part of an interval without steps in which `other` costs less.
fn cheaper_in(best: &[(f64, f64)], other: &[(f64, f64)], low: f64, high: f64) -> Option<(f64, f64)> {
    let savings = |at: f64| interpolated(best, low, high, at) - interpolated(other, low, high, at);
    let (at_low, at_high) = (savings(low), savings(high));
    let crossing = low + (high - low) * at_low / (at_low - at_high);
    match (at_low > 0.0, at_high > 0.0) {
        (true, true) => Some((low, high)),
        (true, false) => Some((low, crossing)),
        (false, true) => Some((crossing, high)),
        (false, false) => None,
    }
}

/// Returns a month by the line that a curve follows inside an interval, also at its ends, where the curve may step.
fn interpolated(curve: &[(f64, f64)], low: f64, high: f64, at: f64) -> f64 {
    let middle = f64::midpoint(low, high);
    let next = curve.partition_point(|(at, _)| *at <= middle).clamp(1, curve.len() - 1);
    let ((from, usd_from), (to, usd_to)) = (curve[next - 1], curve[next]);
    match to > from {
        true => usd_from + (usd_to - usd_from) * (at - from) / (to - from),
        false => usd_to,
    }
}

/// Returns dollars a month over the table's size, as multiples of the measured size from 0 to `largest`; linear between
/// two points. The number of instances is as measured, and copies and caches grow with the table; other effects on latency need a
/// measurement. Empty if the variant has no price, or its prices do not depend on size.
fn over_size(ranked: &Ranked, terms: &CostTerms, largest: f64) -> Vec<(f64, f64)> {
    let (Some(by_size), Some(month), Some(instances)) = (&terms.by_size, ranked.usd_per_month, ranked.instances) else {
        return Vec::new();
    };
    let instances = f64::from(instances);
    let rest = month - by_size.at(1.0, instances);
    let breakpoints = by_size.usd_per_month.iter().chain(&by_size.copy_usd_per_month);
    let breakpoints = breakpoints.map(|(times, _)| *times);
    let mut at: Vec<f64> = breakpoints.filter(|times| *times > 0.0 && *times < largest).collect();
    at.extend([0.0, largest]);
    at.sort_by(f64::total_cmp);
    at.dedup();
    let usd = |times| (times, rest + by_size.at(times, instances));
    at.into_iter().map(usd).collect()
}

#[cfg(test)]
mod tests {
    use super::super::monthly::{TierUse, monthly};
    use super::*;
    use crate::record::{BySize, CostTerms, Demand, MeetsObjective, Minimise, Mode};
    use proptest::prelude::*;

    fn question(peak_rps: f64) -> Question {
        Question {
            objectives: Vec::new(),
            error_share: 0.001,
            demand: Some(Demand {
                average_rps: peak_rps,
                peak_rps,
            }),
            minimise: Minimise::UsdPerMonth,
            mode: Mode::Realtime,
            batch_size: 1,
            budget_s: 600.0,
            confidence: 0.95,
            tie: 0.05,
            utilisation: 1.0,
            least_instances: 1,
            highest_rps: 1e6,
        }
    }

    fn terms(usd_per_instance: f64, fixed: f64, usd_per_request: f64) -> CostTerms {
        CostTerms {
            usd_per_instance_month: usd_per_instance,
            fixed_usd_per_month: vec![("capacity".to_owned(), fixed)],
            usd_per_request,
            ..CostTerms::default()
        }
    }

    const USE: TierUse = TierUse {
        requests: 1.0,
        bytes: 0.0,
    };

    fn ranked(terms: &CostTerms, highest_rps: f64, peak_rps: f64) -> Ranked {
        let month = monthly(terms, USE, &question(peak_rps), highest_rps);
        Ranked {
            variant: "v".to_owned(),
            tier: "t".to_owned(),
            outcome: MeetsObjective::Met,
            at_rps: None,
            p99_us: None,
            p99_us_lo: None,
            p99_us_hi: None,
            p99_grade: None,
            p99_missing: None,
            highest_rps: Some(highest_rps),
            highest_rps_lo: None,
            highest_rps_hi: None,
            highest_is_bound: false,
            instances: Some(month.instances),
            instances_lo: None,
            usd_per_month: Some(month.usd_per_month),
            usd_per_month_lo: None,
            usd_per_month_hi: None,
            usd_per_10k: None,
            usd_parts: month.parts,
            dominant_part: None,
            dominant_share: None,
            why: String::new(),
            steps: 0,
        }
    }

    fn start(stretch: Option<CheaperRange>) -> f64 {
        stretch.unwrap().from.unwrap()
    }

    fn end(stretch: Option<CheaperRange>) -> f64 {
        stretch.unwrap().to.unwrap()
    }

    #[test]
    fn what_is_paid_by_the_request_is_cheaper_below_and_what_is_paid_by_the_month_above() {
        // A fixed 100 dollars a month, or 1 and 1e-7 a request: equal at 99e7 requests a month.
        let (flat, by_request) = (terms(0.0, 100.0, 0.0), terms(0.0, 1.0, 1e-7));
        let turn_rps = 99e7 / (730.0 * 3_600.0);
        let of = |terms: &CostTerms| ranked(terms, 1e6, 1_000.0);
        let found = crossovers(&question(1_000.0), &of(&flat), &of(&by_request)).unwrap();
        assert_eq!((found.above, found.below.unwrap().from), (None, None));
        assert!((end(found.below) / turn_rps - 1.0).abs() < 1e-9, "{found:?}");
        let of = |terms: &CostTerms| ranked(terms, 1e6, 100.0);
        let found = crossovers(&question(100.0), &of(&by_request), &of(&flat)).unwrap();
        assert_eq!((found.below, found.above.unwrap().to), (None, None));
        assert!((start(found.above) / turn_rps - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn another_instance_turns_the_order_where_it_is_needed() {
        // Instances of 10 dollars that carry 100/s, or of 15 that carry 200/s.
        let small = ranked(&terms(10.0, 0.0, 0.0), 100.0, 50.0);
        let large = ranked(&terms(15.0, 0.0, 0.0), 200.0, 50.0);
        let found = crossovers(&question(50.0), &small, &large).unwrap();
        assert_eq!((found.below, start(found.above)), (None, 100.0));
        let small = ranked(&terms(10.0, 0.0, 0.0), 100.0, 150.0);
        let large = ranked(&terms(15.0, 0.0, 0.0), 200.0, 150.0);
        let found = crossovers(&question(150.0), &large, &small).unwrap();
        assert_eq!((end(found.below), found.above), (100.0, None));
    }

    #[test]
    fn a_larger_instance_is_cheaper_only_between_two_numbers_of_small_ones() {
        // Instances of 10 dollars that carry 100/s, or of 19 that carry 150/s: 20 against 19 dollars from 100 to 150/s.
        let small = ranked(&terms(10.0, 0.0, 0.0), 100.0, 50.0);
        let large = ranked(&terms(19.0, 0.0, 0.0), 150.0, 50.0);
        let between = |from, to| {
            Some(CheaperRange {
                from: Some(from),
                to: Some(to),
            })
        };
        let found = crossovers(&question(50.0), &small, &large).unwrap();
        assert_eq!((found.below, found.above), (None, between(100.0, 150.0)));
        let found = crossovers(&question(170.0), &small, &large).unwrap();
        assert_eq!(found.below, between(100.0, 150.0));
    }

    #[test]
    fn who_is_dearer_everywhere_never_turns_it() {
        let (cheap, dear) = (terms(10.0, 0.0, 0.0), terms(10.0, 5.0, 1e-9));
        let found = crossovers(
            &question(100.0),
            &ranked(&cheap, 100.0, 100.0),
            &ranked(&dear, 90.0, 100.0),
        )
        .unwrap();
        assert_eq!(found, Crossovers::default());
    }

    /// Capacity prices by table size, in dollars at size 0 and at the measured size.
    fn sized(usd_at_none: f64, usd_now: f64, largest: Option<f64>) -> CostTerms {
        CostTerms {
            by_size: Some(BySize {
                table_bytes: 1 << 30,
                usd_per_month: vec![
                    (0.0, usd_at_none),
                    (1.0, usd_now),
                    (1_000.0, usd_at_none + 1_000.0 * (usd_now - usd_at_none)),
                ],
                per_instance: false,
                copy_usd_per_month: Vec::new(),
                largest_times: largest,
            }),
            ..terms(10.0, usd_now, 0.0)
        }
    }

    #[test]
    fn what_is_paid_by_the_gigabyte_is_dearer_for_a_large_table() {
        let of = |terms: &CostTerms, fixed: f64| {
            let mut ranked = ranked(terms, 1e6, 100.0);
            ranked.usd_parts.push(("server".to_owned(), fixed));
            ranked.usd_per_month = ranked.usd_per_month.map(|usd| usd + fixed);
            ranked
        };
        // A dollar for the measured table alone, or a server of 30 dollars with capacity at a tenth: equal at 33.3
        // times.
        let (service, server) = (sized(0.0, 1.0, None), sized(0.0, 0.1, None));
        let found = crossovers_by_size((&of(&service, 0.0), &service), (&of(&server, 30.0), &server)).unwrap();
        assert_eq!(found.below, None);
        assert_eq!(found.above.unwrap().to, None);
        assert!((start(found.above) - 30.0 / 0.9).abs() < 1e-9, "{found:?}");
        // A disk that ends above.
        let disk = sized(0.0, 0.1, Some(50.0));
        let found = crossovers_by_size((&of(&service, 0.0), &service), (&of(&disk, 30.0), &disk)).unwrap();
        assert_eq!(found.above.unwrap().to, Some(50.0));
        // Beyond the capacity of a disk there is no result for it.
        let disk = sized(0.0, 0.1, Some(20.0));
        let found = crossovers_by_size((&of(&service, 0.0), &service), (&of(&disk, 30.0), &disk)).unwrap();
        assert_eq!(found, Crossovers::default());
        assert_eq!(
            crossovers_by_size(
                (&of(&service, 0.0), &service),
                (&of(&server, 30.0), &terms(10.0, 1.0, 0.0))
            ),
            None
        );
    }

    proptest! {
        /// Compared with months at many demands: in its ranges the other costs less, and between them it does not.
        #[test]
        fn turns_are_those_of_the_months(
            a in (1.0_f64..50.0, 0.0_f64..50.0, 0.0_f64..2e-8, 20.0_f64..500.0),
            b in (1.0_f64..50.0, 0.0_f64..50.0, 0.0_f64..2e-8, 20.0_f64..500.0),
        ) {
            const PEAK: f64 = 100.0;
            let month = |(instance, fixed, request, highest): (f64, f64, f64, f64), rps: f64| {
                monthly(&terms(instance, fixed, request), USE, &question(rps), highest).usd_per_month
            };
            let (a, b) = if month(a, PEAK) <= month(b, PEAK) { (a, b) } else { (b, a) };
            let of = |(instance, fixed, request, highest)| ranked(&terms(instance, fixed, request), highest, PEAK);
            let found = crossovers(&question(PEAK), &of(a), &of(b)).unwrap();
            for step in 0..400 {
                let rps = PEAK * 10_f64.powf(f64::from(step) / 100.0 - 2.0) * 1.000_1;
                let savings = month(a, rps) / month(b, rps) - 1.0;
                let is_between = found.below.is_none_or(|_| rps > end(found.below) * 1.001)
                    && found.above.is_none_or(|_| rps < start(found.above) / 1.001);
                let is_inside = |one: Option<CheaperRange>| one.is_some_and(|one| {
                    rps > one.from.unwrap_or(0.0) * 1.001 && rps < one.to.unwrap_or(f64::INFINITY) / 1.001
                });
                if is_between {
                    prop_assert!(savings <= 1e-9, "{rps}/s: {savings} {found:?}");
                } else if is_inside(found.below) || is_inside(found.above) {
                    prop_assert!(savings >= -1e-9, "{rps}/s: {savings} {found:?}");
                }
            }
        }
    }
}
