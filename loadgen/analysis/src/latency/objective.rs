//! Latencies of a step or point compared with an objective.
//!
//! In: an objective and a table of latencies. Out: the limited figure, and the number of slow requests. Pure.

use crate::record::Objective;
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
#[must_use]
pub fn slow(objective: Objective, table: &BlockTable) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Percentile;
    use crate::statistics::histogram::histogram;

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
}
