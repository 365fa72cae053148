//! Rates that matter to a question. In: the question. Out: rates of one instance. Knows nothing of steps.

use crate::costs::monthly::instances;
use crate::record::{Minimise, Question};

/// Minimum ratio of the lowest rate that matters to the highest.
const LOWEST_SHARE: f64 = 1.0 / 32.0;
/// Minimum rate that matters, in requests per second: below it a short step has too few requests.
const MIN_RPS: f64 = 30.0;
/// Minimum ratio of the lowest rate to the highest if the highest itself is low.
const LOWEST_OF_LOW: f64 = 0.25;
/// Maximum number of rates.
const MAX_COUNT: usize = 256;
/// Ratio between successive rates of a curve.
const MAX_RISE: f64 = 2.0;
/// Minimum distance of two rates, as a share.
const MIN_STEP: f64 = 0.01;

/// Returns the rates at which the answer can change, rising; at least one.
///
/// With a demand: `peak / (utilisation × n)`, the rate that each of `n` instances must carry, from the smallest
/// possible `n`; if there are many, only those that differ by half a tie margin. Without a demand: half a tie margin
/// apart. For a percentile question: only the demand's share of the fewest instances.
pub fn rates(question: &Question) -> Vec<f64> {
    if question.minimise == Minimise::P99 {
        return vec![percentile_rps(question)];
    }
    let step = 1.0 + (question.tie / 2.0).max(MIN_STEP);
    let mut rates = Vec::new();
    if let Some(demand) = &question.demand {
        let mut instances = instances(question, question.highest_rps);
        let rate = |instances: f64| (demand.peak_rps / (question.utilisation * instances)).min(question.highest_rps);
        let lowest = lowest(rate(instances));
        while rates.len() < MAX_COUNT && (rates.is_empty() || rate(instances) >= lowest) {
            rates.push(rate(instances));
            instances = (instances + 1.0).max((instances * step).floor());
        }
    } else {
        let lowest = lowest(question.highest_rps);
        let mut rate = question.highest_rps;
        while rates.len() < MAX_COUNT && (rates.is_empty() || rate >= lowest) {
            rates.push(rate);
            rate /= step;
        }
    }
    rates.reverse();
    rates
}

/// Returns the rates that matter, with rates half a tie margin apart from the lowest of them to the question's highest;
/// rising.
pub fn all(question: &Question) -> Vec<f64> {
    let mut all = rates(question);
    let open = Question {
        demand: None,
        minimise: Minimise::Instances,
        ..question.clone()
    };
    let is_near = |rps: f64| all.iter().any(|rate| (rps / rate - 1.0).abs() <= MIN_STEP);
    let mut between = rates(&open);
    between.retain(|rps| *rps > all[0] && !is_near(*rps));
    all.extend(between);
    all.sort_by(f64::total_cmp);
    all
}

/// Returns the next rate of a curve: the highest up to twice the rate reached, or else the next one; `None` at the end.
/// From 0 it is the lowest.
pub fn bracket(rates: &[f64], reached: f64) -> Option<f64> {
    let above = || rates.iter().copied().filter(|rate| *rate > reached * (1.0 + 1e-6));
    let near = above().take_while(|rate| *rate <= MAX_RISE * reached);
    near.last().or_else(|| above().next())
}

/// Returns the rate at which percentiles are compared: the demand's share of one of the fewest instances.
fn percentile_rps(question: &Question) -> f64 {
    question.demand.as_ref().map_or(question.highest_rps, |demand| {
        demand.peak_rps / instances(question, question.highest_rps)
    })
}

fn lowest(highest: f64) -> f64 {
    (highest * LOWEST_SHARE).max(MIN_RPS.min(highest * LOWEST_OF_LOW))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Demand, Mode};

    fn question(peak_rps: Option<f64>) -> Question {
        Question {
            objectives: Vec::new(),
            error_share: 0.001,
            demand: peak_rps.map(|peak_rps| Demand {
                average_rps: peak_rps,
                peak_rps,
            }),
            minimise: Minimise::Instances,
            mode: Mode::Realtime,
            batch_size: 1,
            budget_s: 600.0,
            confidence: 0.95,
            tie: 0.05,
            utilisation: 0.5,
            least_instances: 2,
            highest_rps: 400.0,
        }
    }

    #[test]
    fn instances_change_at_each_and_nowhere_else() {
        let question = question(Some(500.0));
        let rates = rates(&question);
        // At least three instances: 400/s each carry 200.
        assert!((rates[rates.len() - 1] - 1_000.0 / 3.0).abs() < 1e-9, "{rates:?}");
        for (fewer, rate) in rates.iter().rev().enumerate().take(10) {
            assert_eq!(instances(&question, *rate), fewer as f64 + 3.0);
            assert_eq!(instances(&question, rate * 0.999), fewer as f64 + 4.0);
        }
        assert!(rates.is_sorted() && rates[0] >= 30.0);
    }

    #[test]
    fn all_rates_are_close_also_between_those_that_change_the_number_of_instances() {
        let question = Question {
            least_instances: 1,
            highest_rps: 1_000.0,
            ..question(Some(250.0))
        };
        let (few, all) = (rates(&question), all(&question));
        assert!(few.windows(2).any(|pair| pair[1] > 1.9 * pair[0]), "{few:?}");
        assert!(few.iter().all(|rate| all.contains(rate)) && all[0] == few[0]);
        assert!(
            all.is_sorted() && all.windows(2).all(|pair| pair[1] < 1.04 * pair[0]),
            "{all:?}"
        );
    }

    #[test]
    fn a_percentile_is_measured_at_the_rate_that_each_counted_instance_gets() {
        for (peak_rps, expected) in [(300.0, 150.0), (1_000.0, 1_000.0 / 3.0)] {
            let question = Question {
                minimise: Minimise::P99,
                ..question(Some(peak_rps))
            };
            let rates = rates(&question);
            assert_eq!(rates, [expected]);
            assert_eq!(peak_rps / instances(&question, rates[0]), rates[0]);
        }
    }

    #[test]
    fn a_small_demand_has_a_rate_and_a_large_one_not_too_many() {
        assert_eq!(rates(&question(Some(20.0))).last(), Some(&20.0));
        let many = rates(&question(Some(1e6)));
        assert!(many.len() < 160 && many.last() == Some(&400.0), "{}", many.len());
        let open = rates(&question(None));
        assert!(open.last() == Some(&400.0) && open[0] >= 30.0 && open.len() < 120);
    }

    #[test]
    fn a_bracket_doubles_and_ends_at_the_top() {
        let rates = [10.0, 15.0, 25.0, 60.0];
        let all: Vec<f64> = std::iter::successors(bracket(&rates, 0.0), |rate| bracket(&rates, *rate)).collect();
        assert_eq!(all, [10.0, 15.0, 25.0, 60.0]);
        let rates: Vec<f64> = (10..=100).map(f64::from).collect();
        assert_eq!(bracket(&rates, 10.0), Some(20.0));
        assert_eq!(bracket(&rates, 100.0), None);
    }
}
