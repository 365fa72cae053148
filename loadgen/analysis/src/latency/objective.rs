//! Latencies of a step or point compared with an objective, and goodput: good replies within a limit.
//!
//! In: an objective or a limit in microseconds, and a table of latencies or the repeats of a point. Out: the limited
//! figure, and the requests that miss it as counts, rates and shares. Pure. A failed request misses every limit, however
//! fast it failed.

use crate::record::{Objective, Repeat};
use crate::statistics::percentile::BlockTable;

/// Returns the latency figure that the objective limits, in microseconds; `None` without samples.
#[must_use]
pub fn measured_us(objective: Objective, table: &BlockTable) -> Option<f64> {
    match objective.quantile() {
        Some(quantile) => Some(table.pooled_quantile(quantile)? as f64),
        None => table.mean(),
    }
}

/// Returns the number of requests that count as slow; the objective is missed above a share of
/// [`Objective::slow_share`].
///
/// For the mean the odds of being slow are the mean over its limit: they reach 1 at the limit, and rise with the rate
/// as the mean does.
pub(crate) fn slow(objective: Objective, table: &BlockTable) -> f64 {
    let share = match objective {
        // The limit is far below 2^63.
        Objective::Percentile { limit_us, .. }
        | Objective::Goodput {
            within_us: limit_us, ..
        } => 1.0 - table.share_up_to(0..table.blocks(), limit_us as u64).unwrap_or(1.0),
        Objective::Mean { mean_limit_us } => table.mean().map_or(0.0, |us| us / (us + mean_limit_us)),
    };
    share * table.samples() as f64
}

/// Returns the number of requests that missed a limit: slower good replies, and failed requests.
///
/// Older results hold failed requests among the latencies, without telling which were slow: their counts are added, up
/// to the number of requests.
pub(crate) fn missed(repeat: &Repeat, limit_us: f64) -> u64 {
    // Limits are far below 2^63.
    let limit_us = limit_us as u64;
    let counts = repeat.histograms.latency.iter().flat_map(|block| block.iter_recorded());
    let slow = counts.filter(|step| step.value_iterated_to() > limit_us);
    let slow: u64 = slow.map(|step| step.count_at_value()).sum();
    (slow + repeat.failed()).min(repeat.scheduled)
}

/// Returns the number of requests that count as missing an objective, failed requests included.
pub(crate) fn misses(repeat: &Repeat, objective: Objective) -> f64 {
    match objective {
        Objective::Percentile { limit_us, .. }
        | Objective::Goodput {
            within_us: limit_us, ..
        } => missed(repeat, limit_us) as f64,
        Objective::Mean { .. } => {
            let table = BlockTable::new([repeat.histograms.latency.as_slice()]);
            (slow(objective, &table) + repeat.failed() as f64).min(repeat.scheduled as f64)
        }
    }
}

/// Returns good replies within a limit per second of the window, by scheduled start.
pub(crate) fn rate(repeat: &Repeat, limit_us: f64) -> f64 {
    (repeat.scheduled - missed(repeat, limit_us)) as f64 / repeat.window_s
}

/// Returns the share of all scheduled requests with a good reply within a limit; `None` if nothing was scheduled.
pub(crate) fn share(repeats: &[Repeat], limit_us: f64) -> Option<f64> {
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let missed: u64 = repeats.iter().map(|repeat| missed(repeat, limit_us)).sum();
    (scheduled > 0).then(|| (scheduled - missed) as f64 / scheduled as f64)
}

/// Returns the quantile of good replies that is the given quantile of all requests, if failed requests count as slower
/// than any reply; `None` if the quantile is among the failures.
pub(crate) fn among_good(repeats: &[Repeat], quantile: f64) -> Option<f64> {
    let sum = |of: fn(&Repeat) -> u64| repeats.iter().map(of).sum::<u64>() as f64;
    let (scheduled, completed) = (sum(|repeat| repeat.scheduled), sum(|repeat| repeat.completed));
    if scheduled == completed || repeats.iter().any(Repeat::has_failures_in_latency) {
        return Some(quantile);
    }
    Some(quantile * scheduled / completed).filter(|among| *among <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Histograms, Percentile};
    use crate::statistics::percentile::histogram;

    #[test]
    fn slow_requests_cross_their_share_where_the_figure_crosses_its_limit() {
        let latencies: Vec<u64> = (0..1_000).map(|i| if i % 50 == 0 { 60_000 } else { 1_000 }).collect();
        let table = BlockTable::new([&[histogram(&latencies)][..]]);
        let mean_us = table.mean().unwrap();
        assert!((mean_us / 2_180.0 - 1.0).abs() < 0.001, "{mean_us}");
        for (limit, met) in [(0.9, false), (1.1, true)] {
            let p99 = Objective::Percentile {
                percentile: Percentile::P99,
                limit_us: 60_000.0 * limit,
            };
            let mean = Objective::Mean {
                mean_limit_us: 2_180.0 * limit,
            };
            let within = Objective::Goodput {
                goodput_share: 0.985,
                within_us: 60_000.0 * limit,
            };
            for objective in [p99, mean, within] {
                let us = measured_us(objective, &table).unwrap();
                assert_eq!(us < objective.limit_us().unwrap(), met, "{objective}: {us}");
                assert_eq!(
                    slow(objective, &table) <= objective.slow_share() * 1_000.0,
                    met,
                    "{objective}"
                );
            }
        }
    }

    /// Creates a window of 2 s with good replies of these latencies and `failed` immediate failures.
    fn repeat(latencies_us: &[u64], failed: u64, is_old: bool) -> Repeat {
        let at_once = vec![400; failed as usize];
        let old = [latencies_us, &at_once].concat();
        let completed = latencies_us.len() as u64;
        Repeat {
            window_s: 2.0,
            scheduled: completed + failed,
            completed,
            histograms: Histograms {
                latency: vec![histogram(if is_old { &old } else { latencies_us })],
                failed: if is_old { Vec::new() } else { vec![histogram(&at_once)] },
                ..Histograms::default()
            },
            ..Repeat::empty()
        }
    }

    #[test]
    fn every_failure_misses_however_fast_it_failed() {
        let all = [5_000, 5_000, 40_000, 60_000];
        for is_old in [false, true] {
            let one = repeat(&all, 6, is_old);
            assert_eq!(one.has_failures_in_latency(), is_old);
            assert_eq!(missed(&one, 50_000.0), 7);
            assert_eq!(missed(&one, 500.0), 10);
            assert!((rate(&one, 50_000.0) - 1.5).abs() < 1e-12);
            assert_eq!(share(&[one], 50_000.0), Some(0.3));
        }
        assert_eq!(missed(&repeat(&all, 0, false), 50_000.0), 1);
        assert_eq!(share(&[Repeat::empty()], 50_000.0), None);
    }

    #[test]
    fn a_quantile_of_all_requests_is_a_higher_one_of_the_good() {
        let all: Vec<u64> = (1..=990).collect();
        let among = |failed, quantile, is_old| among_good(&[repeat(&all, failed, is_old)], quantile);
        assert_eq!(among(0, 0.99, false), Some(0.99));
        assert_eq!(among(10, 0.99, false), Some(1.0));
        assert_eq!(among(11, 0.99, false), None, "more than one in a hundred failed");
        assert!((among(10, 0.5, false).unwrap() - 0.5 / 0.99).abs() < 1e-12);
        assert_eq!(among(10, 0.99, true), Some(0.99));
    }
}
