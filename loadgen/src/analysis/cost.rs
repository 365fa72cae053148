//! Dollars per 10,000 inferences.
//!
//! In: the repeats of a point and the prices. Out: the cost with its interval and its parts. Knows nothing of
//! latencies.

use super::sections::mean_interval;
use crate::record::{Factors, Interval, Pricing, Repeat};

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// The parts, in order.
pub const PARTS: [&str; 5] = ["compute", "cache memory", "tier capacity", "storage requests", "bytes"];

/// The cost of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Dollars per 10,000 inferences.
    pub usd_per_10k: Interval,
    /// What it is made of, in dollars; sums to the value.
    pub parts: Vec<(String, f64)>,
}

/// The cost at the offered rate: `(instance $/h ÷ 3600 ÷ inferences/s + tier $/h ÷ 3600 ÷ inferences/s + tier requests per inference × price +
/// tier bytes per inference × price) × 10,000`, as the mean over the repeats with Student's interval. With a single
/// repeat the interval is that of the rate alone.
///
/// `None` where there is nothing to divide by, or where the tier charges for requests or bytes that the server's
/// counters do not tell: a cost with a part missing would look like a cheap tier.
#[must_use]
pub fn cost(factors: &Factors, repeats: &[Repeat], rate: &Interval, pricing: &Pricing) -> Option<Cost> {
    let per_repeat: Vec<[f64; 5]> = repeats
        .iter()
        .map(|repeat| parts(factors, repeat, pricing))
        .collect::<Option<Vec<_>>>()?;
    if per_repeat.is_empty() {
        return None;
    }
    let count = per_repeat.len() as f64;
    let means: [f64; 5] = std::array::from_fn(|part| per_repeat.iter().map(|parts| parts[part]).sum::<f64>() / count);
    let value: f64 = means.iter().sum();
    let totals: Vec<f64> = per_repeat.iter().map(|parts| parts.iter().sum()).collect();
    let usd_per_10k = match mean_interval(&totals) {
        Some(interval) => Interval {
            value,
            lo: interval.lo.max(0.0),
            hi: interval.hi,
        },
        None => {
            let (hourly, rest) = (means[..3].iter().sum::<f64>(), means[3] + means[4]);
            // A rate above zero has an interval above zero.
            let end = |rate_end: f64| rest + hourly * rate.value / rate_end;
            Interval {
                value,
                lo: end(rate.hi),
                hi: end(rate.lo),
            }
        }
    };
    let parts = PARTS.iter().zip(means).filter(|(_, usd)| *usd > 0.0);
    Some(Cost {
        usd_per_10k,
        parts: parts.map(|(name, usd)| ((*name).to_owned(), usd)).collect(),
    })
}

/// The parts of one repeat, in the order of [`PARTS`]. The cache's memory is a part of the instance's price, so that it
/// is taken out of compute: what it costs is seen, and the sum stays what is paid.
pub(super) fn parts(factors: &Factors, repeat: &Repeat, pricing: &Pricing) -> Option<[f64; 5]> {
    // The instance was shared with the other parts of a mix: nobody can say which of it was whose.
    if factors.mix.is_some() {
        return None;
    }
    // A short Poisson schedule holds a few percent more or fewer requests than its rate says. That is known, and says
    // nothing of the server: what counts is which share of the schedule came back, times the rate offered.
    let returned = repeat.achieved_rps * repeat.window_s / repeat.scheduled.max(1) as f64;
    let inferences_per_s = returned * factors.offered_rps * f64::from(factors.batch_size);
    if inferences_per_s <= 0.0 {
        return None;
    }
    let hourly = |usd_per_hour: f64| usd_per_hour / 3_600.0 / inferences_per_s * 1e4;
    let tier = &factors.tier;
    let counted = |price: Option<&f64>, of: fn(&crate::record::ServerDelta) -> f64| match price {
        None => Some(0.0),
        Some(price) => {
            let server = repeat.server.as_ref().filter(|server| server.inferences > 0.0)?;
            Some(of(server) / server.inferences * price * 1e4)
        }
    };
    let capacity_gib = repeat.server.as_ref().map_or(0.0, |server| server.cache_capacity_bytes) / BYTES_PER_GIB;
    let memory_usd = (capacity_gib * pricing.usd_per_gib_hour).min(pricing.usd_per_hour);
    Some([
        hourly(pricing.usd_per_hour - memory_usd),
        hourly(memory_usd),
        hourly(pricing.usd_per_hour_by_tier.get(tier).copied().unwrap_or(0.0)),
        counted(pricing.usd_per_request.get(tier), |server| server.tier_requests)?,
        counted(pricing.usd_per_byte.get(tier), |server| server.tier_wire_bytes)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Histograms, Mode, ServerDelta};
    use std::collections::BTreeMap;

    fn factors(tier: &str, batch_size: u32) -> Factors {
        Factors {
            tier: tier.to_owned(),
            cache: "cold".to_owned(),
            cache_share: 0.0,
            model: "ctr".to_owned(),
            mode: if batch_size == 1 { Mode::Realtime } else { Mode::Batch },
            batch_size,
            offered_rps: 100.0,
            arrivals: "poisson".to_owned(),
            keys: "uniform".to_owned(),
            mix: None,
        }
    }

    fn repeat(achieved_rps: f64, server: Option<ServerDelta>) -> Repeat {
        Repeat {
            index: 0,
            seed: 0,
            started_at: String::new(),
            window_s: 10.0,
            scheduled: (achieved_rps * 10.0) as u64,
            completed: 1_000,
            errors: BTreeMap::new(),
            achieved_rps,
            autocorrelation_time: 1.0,
            in_flight_limit_hit: false,
            mean_in_flight: 1.0,
            in_flight_by_stays: None,
            backlog_slope: Interval::default(),
            bands: Vec::new(),
            server,
            hdr_file: String::new(),
            histograms: Histograms::default(),
        }
    }

    fn returned(share: f64) -> Repeat {
        Repeat {
            achieved_rps: 100.0 * share,
            ..repeat(100.0, delta())
        }
    }

    fn delta() -> Option<ServerDelta> {
        let mut delta = ServerDelta::default();
        (delta.inferences, delta.tier_requests, delta.tier_wire_bytes) = (1_000.0, 2_000.0, 4_096_000.0);
        Some(delta)
    }

    fn pricing() -> Pricing {
        let by = |tier: &str, usd: f64| BTreeMap::from([(tier.to_owned(), usd)]);
        Pricing {
            instance: "test".to_owned(),
            usd_per_hour: 3.6,
            usd_per_gib_hour: 0.36,
            instances: Vec::new(),
            instances_by_tier: BTreeMap::new(),
            usd_per_hour_by_tier: by("nfs", 1.8),
            usd_per_request: by("s3", 4e-7),
            usd_per_byte: by("s3", 1e-9),
            sources: Vec::new(),
        }
    }

    fn rate(value: f64) -> Interval {
        Interval {
            value,
            lo: value * 0.9,
            hi: value * 1.1,
        }
    }

    #[test]
    fn the_formula_by_hand() {
        // $3.6/h is $0.001/s; at 100 inferences/s that is $0.1 per 10k. 2 requests × $4e-7 and 4,096 B × $1e-9 each.
        let cost = cost(&factors("s3", 1), &[repeat(100.0, delta())], &rate(100.0), &pricing()).unwrap();
        let expected = [("compute", 0.1), ("storage requests", 0.008), ("bytes", 0.040_96)];
        assert_eq!(cost.parts.len(), 3);
        for ((name, usd), (expected_name, expected_usd)) in cost.parts.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((usd - expected_usd).abs() < 1e-12, "{name}");
        }
        assert!((cost.usd_per_10k.value - 0.148_96).abs() < 1e-12);
        assert!((cost.usd_per_10k.hi - (0.048_96 + 0.1 / 0.9)).abs() < 1e-9);
        assert!((cost.usd_per_10k.lo - (0.048_96 + 0.1 / 1.1)).abs() < 1e-9);
    }

    #[test]
    fn the_memory_of_a_cache_is_a_part_of_the_instance() {
        let mut server = delta();
        server.as_mut().unwrap().cache_capacity_bytes = 2.0 * BYTES_PER_GIB;
        let with = cost(&factors("s3", 1), &[repeat(100.0, server)], &rate(100.0), &pricing()).unwrap();
        // 2 GiB at $0.36 an hour are a fifth of $3.6.
        assert_eq!(with.parts[1].0, "cache memory");
        assert!((with.parts[0].1 - 0.08).abs() < 1e-12 && (with.parts[1].1 - 0.02).abs() < 1e-12);
        assert!((with.usd_per_10k.value - 0.148_96).abs() < 1e-12);
    }

    #[test]
    fn batches_spread_the_instance_over_more_inferences_and_capacity_counts() {
        let cost = cost(&factors("nfs", 10), &[repeat(100.0, None)], &rate(100.0), &pricing()).unwrap();
        assert!((cost.usd_per_10k.value - 0.015).abs() < 1e-12);
        assert_eq!(cost.parts[1].0, "tier capacity");
    }

    #[test]
    fn repeats_carry_their_spread_into_the_interval() {
        let repeats = [returned(0.9), returned(1.0), returned(0.95)];
        let cost = cost(&factors("s3", 1), &repeats, &rate(100.0), &pricing()).unwrap();
        assert!(cost.usd_per_10k.lo < cost.usd_per_10k.value && cost.usd_per_10k.value < cost.usd_per_10k.hi);
        let sum: f64 = cost.parts.iter().map(|(_, usd)| usd).sum();
        assert!((sum - cost.usd_per_10k.value).abs() < 1e-12);
    }

    #[test]
    fn the_scatter_of_the_schedule_costs_nothing() {
        let repeats = [repeat(90.0, delta()), repeat(100.0, delta()), repeat(110.0, delta())];
        let cost = cost(&factors("s3", 1), &repeats, &rate(100.0), &pricing()).unwrap();
        assert!((cost.usd_per_10k.hi - cost.usd_per_10k.lo) < 1e-9);
    }

    #[test]
    fn no_cost_where_a_part_is_unknown() {
        assert_eq!(
            cost(&factors("s3", 1), &[repeat(100.0, None)], &rate(100.0), &pricing()),
            None
        );
        assert_eq!(
            cost(&factors("s3", 1), &[repeat(0.0, delta())], &rate(0.0), &pricing()),
            None
        );
        assert_eq!(cost(&factors("s3", 1), &[], &rate(0.0), &pricing()), None);
    }
}
