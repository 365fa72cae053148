//! Dollars per 10,000 inferences.
//!
//! In: the repeats of a point and the prices. Out: the cost with its interval and its parts. Knows nothing of
//! latencies.

use super::monthly::HOURS;
use crate::latency::bands::reads_total;
use crate::record::{CostTerms, Driven, Factors, HourBy, Interval, MixShare, Pricing, Repeat, ServerDelta};
use crate::statistics::sections::mean_interval;
use std::borrow::Cow;
use std::collections::BTreeMap;

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// Names of the parts, in order.
pub const PARTS: [&str; 5] = ["compute", "cache memory", "tier capacity", "storage requests", "bytes"];

/// Cost of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Dollars per 10,000 inferences.
    pub usd_per_10k: Interval,
    /// Parts in dollars, by name; they sum to the value.
    pub parts: Vec<(String, f64)>,
}

/// Returns the cost at the offered rate: `(instance $/h ÷ 3600 ÷ inferences/s + tier $/h ÷ 3600 ÷ inferences/s + tier
/// requests per inference × price + tier bytes per inference × price) × 10,000`, as the mean over the repeats with
/// Student's interval. With a single repeat the interval is that of the rate alone. A part of a mix pays its share of
/// the hour and of the tier ([`mod@crate::costs::mix_shares`]), so that all parts together pay exactly the total.
///
/// A closed loop has no offered rate and pays by its achieved rate. The cost of a journey is that of 10,000 journeys,
/// with all their requests: the hour over the journeys, and the tier's use in the step over the journeys that ended in
/// it.
///
/// `None` if there is nothing to divide by, if a variant has no price, or if the tier charges for requests or bytes that
/// the server's counters do not report: a cost with a missing part would look like a cheap tier.
pub fn cost(factors: &Factors, repeats: &[Repeat], rate: &Interval, pricing: &Pricing) -> Option<Cost> {
    let per_repeat = repeats.iter().map(|repeat| parts(factors, repeat, pricing));
    let per_repeat: Vec<[f64; 5]> = per_repeat.collect::<Option<_>>()?;
    if per_repeat.is_empty() {
        return None;
    }
    let count = per_repeat.len() as f64;
    let means: [f64; 5] = std::array::from_fn(|part| per_repeat.iter().map(|parts| parts[part]).sum::<f64>() / count);
    let value: f64 = means.iter().sum();
    let totals: Vec<f64> = per_repeat.iter().map(|parts| parts.iter().sum()).collect();
    let (lo, hi) = mean_interval(&totals).map_or_else(
        || {
            let (hourly, rest) = (means[..3].iter().sum::<f64>(), means[3] + means[4]);
            // A rate above zero has an interval above zero.
            let end = |rate_end: f64| rest + hourly * rate.value / rate_end;
            (end(rate.hi), end(rate.lo))
        },
        |interval| (interval.lo.max(0.0), interval.hi),
    );
    let parts = PARTS.iter().zip(means).filter(|(_, usd)| *usd > 0.0);
    Some(Cost {
        usd_per_10k: Interval::new(value, lo, hi),
        parts: parts.map(|(name, usd)| ((*name).to_owned(), usd)).collect(),
    })
}

/// Good replies per second at the offered rate. A short Poisson schedule holds a few percent more or fewer requests
/// than its rate. That difference is not a property of the server, so this is the answered share of the schedule times
/// the rate. A ramp that stopped did not offer its rate: its replies count over the time in which it offered any.
pub(crate) fn answered_rps(factors: &Factors, repeat: &Repeat) -> f64 {
    let (answered, offered_s) = (repeat.achieved_rps * repeat.window_s, repeat.offered_s(factors));
    match &factors.driven {
        Some(Driven::ClosedLoop { .. }) => repeat.achieved_rps,
        _ if offered_s < repeat.window_s => answered / offered_s,
        _ => answered / repeat.scheduled.max(1) as f64 * factors.offered_rps,
    }
}

/// Parts of one repeat, in the order of [`PARTS`]. The cache's memory is part of the instance's price. It is taken out
/// of compute so that its cost shows and the sum stays the same.
pub(crate) fn parts(factors: &Factors, repeat: &Repeat, pricing: &Pricing) -> Option<[f64; 5]> {
    let share = share(factors, repeat)?;
    let inferences_per_s = answered_rps(factors, repeat) * repeat.inferences_per_request(factors);
    if inferences_per_s <= 0.0 {
        return None;
    }
    let hourly = |usd_per_hour: f64| share.hour * usd_per_hour / 3_600.0 / inferences_per_s * 1e4;
    let usage_cost = |price: f64, of: fn(&ServerDelta) -> f64| {
        if price == 0.0 {
            return Some(0.0);
        }
        let (server, served) = (repeat.server.as_ref()?, repeat.served_inferences()?);
        let paid_for = match &factors.driven {
            Some(Driven::Journey { .. }) if served > 0.0 => repeat.driver.journeys()?.completed as f64,
            _ => share.inferences * served,
        };
        (paid_for > 0.0).then(|| share.tier * of(server) / paid_for * price * 1e4)
    };
    let terms = terms(pricing, factors.label())?;
    let capacity_gib = repeat.server.as_ref().map_or(0.0, |server| server.cache_capacity_bytes) / BYTES_PER_GIB;
    let instances_usd = terms.usd_per_instance_hour + terms.usd_per_instance_month / HOURS;
    // Capacity of all servers together.
    let memory_usd = (capacity_gib * pricing.usd_per_gib_hour).min(instances_usd);
    let fixed_usd: f64 = terms.fixed_usd_per_month.iter().map(|(_, usd)| usd / HOURS).sum();
    Some([
        hourly(instances_usd - memory_usd),
        hourly(memory_usd),
        hourly(fixed_usd),
        usage_cost(terms.usd_per_request, |server| server.tier_requests)?,
        usage_cost(terms.usd_per_byte, |server| server.tier_wire_bytes)?,
    ])
}

/// Returns the cost terms of a variant, or of a tier in a run without variants; `None` for a variant without a price.
fn terms<'a>(pricing: &'a Pricing, label: &str) -> Option<Cow<'a, CostTerms>> {
    if pricing.priced.is_some() || !pricing.terms_by_variant.is_empty() {
        return pricing.terms_by_variant.get(label).map(Cow::Borrowed);
    }
    let of_tier = |prices: &BTreeMap<String, f64>| prices.get(label).copied().unwrap_or(0.0);
    Some(Cow::Owned(CostTerms {
        usd_per_instance_hour: pricing.usd_per_hour,
        fixed_usd_per_month: vec![(String::new(), of_tier(&pricing.usd_per_hour_by_tier) * HOURS)],
        usd_per_request: of_tier(&pricing.usd_per_request),
        usd_per_byte: of_tier(&pricing.usd_per_byte),
        ..CostTerms::default()
    }))
}

/// Returns the share of the step that its repeat pays for: all of it, or a share if other parts of a mix ran with it.
/// `None` for a part of a mix in older results, which lack shares.
fn share(factors: &Factors, repeat: &Repeat) -> Option<MixShare> {
    const ALONE: MixShare = MixShare {
        inferences: 1.0,
        hour: 1.0,
        tier: 1.0,
        hour_by: HourBy::InferenceTime,
    };
    repeat.driver.mix_share().or(factors.mix.is_none().then_some(ALONE))
}

/// Returns the cache's hits and misses in blocks: by the server's counters, or by its own replies for a part of a mix.
fn cache_lookups(repeat: &Repeat) -> (f64, f64) {
    match (repeat.driver.mix_share(), &repeat.server) {
        (Some(_), _) => (
            reads_total(&repeat.bands, |reads| reads.cache_hits),
            reads_total(&repeat.bands, |reads| reads.cache_misses),
        ),
        (None, Some(server)) => (server.cache_hits, server.cache_misses),
        (None, None) => (0.0, 0.0),
    }
}

/// Returns the cache hit ratio of blocks over some repeats; `None` if nothing was looked up.
pub(crate) fn hit_ratio<'a>(repeats: impl IntoIterator<Item = &'a Repeat>) -> Option<f64> {
    let (mut hits, mut all) = (0.0, 0.0);
    for (hit, missed) in repeats.into_iter().map(cache_lookups) {
        hits += hit;
        all += hit + missed;
    }
    (all > 0.0).then(|| hits / all)
}

/// Returns each repeat's tier requests per inference; `None` if the server did not report them.
pub(crate) fn tier_requests_per_inference(repeats: &[Repeat]) -> Option<f64> {
    let (mut requests, mut inferences) = (0.0, 0.0);
    for repeat in repeats {
        let share = repeat.driver.mix_share();
        let (tier, of) = share.map_or((1.0, 1.0), |share| (share.tier, share.inferences));
        requests += repeat.server.as_ref().map_or(0.0, |server| tier * server.tier_requests);
        inferences += of * repeat.served_inferences().unwrap_or(0.0);
    }
    (inferences > 0.0).then(|| requests / inferences)
}

#[cfg(test)]
mod tests {
    use super::super::monthly::{TierUse, monthly};
    use super::*;
    use crate::record::{
        Band, DriverFigures, InstancePrice, JourneyFigures, Minimise, Mode, PricedVariants, Question, RAMP_BLOCKS,
        RampFigures, RampRates, Reads, SentRequests, ServerStages,
    };

    fn factors(tier: &str, batch_size: u32) -> Factors {
        Factors {
            variant: String::new(),
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
            driven: None,
        }
    }

    fn repeat(achieved_rps: f64, server: Option<ServerDelta>) -> Repeat {
        Repeat {
            window_s: 10.0,
            scheduled: (achieved_rps * 10.0) as u64,
            completed: 1_000,
            achieved_rps,
            server,
            ..Repeat::empty()
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
            terms_by_variant: BTreeMap::new(),
            servers_by_variant: BTreeMap::new(),
            usd_per_month_by_instance: BTreeMap::new(),
            priced: None,
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
    fn a_server_that_does_not_count_its_tiers_requests_has_no_cost_of_them() {
        let mut foreign = delta();
        foreign.as_mut().unwrap().stages = Some(ServerStages::default());
        let repeats = [repeat(100.0, foreign)];
        let of = |tier: &str| cost(&factors(tier, 1), &repeats, &rate(100.0), &pricing());
        assert_eq!((of("s3"), tier_requests_per_inference(&repeats)), (None, None));
        // A tier without a price by use needs no counters.
        assert!(of("nvme").is_some());
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

    /// Prices of a variant `s3` on an instance of its own, dearer than the plan's.
    fn of_variant() -> Pricing {
        let terms = CostTerms {
            instance: "own".to_owned(),
            usd_per_instance_hour: 14.4,
            usd_per_instance_month: 3.6 * HOURS,
            fixed_usd_per_month: vec![("capacity".to_owned(), 1.8 * HOURS), ("server".to_owned(), 1.8 * HOURS)],
            usd_per_request: 4e-7,
            ..CostTerms::default()
        };
        Pricing {
            terms_by_variant: BTreeMap::from([("s3".to_owned(), terms)]),
            servers_by_variant: BTreeMap::from([("s3".to_owned(), 4)]),
            ..pricing()
        }
    }

    #[test]
    fn a_variant_is_paid_by_its_own_terms() {
        let mut server = delta();
        // Four servers together: 0.72 of $18 an hour are a twenty-fifth.
        server.as_mut().unwrap().cache_capacity_bytes = 2.0 * BYTES_PER_GIB;
        let of = |label: &str, pricing: &Pricing| {
            let repeats = [repeat(100.0, server.clone())];
            cost(&factors(label, 1), &repeats, &rate(100.0), pricing)
        };
        let parts = |cost: Option<Cost>| {
            cost.unwrap()
                .parts
                .into_iter()
                .map(|(_, usd)| usd)
                .collect::<Vec<f64>>()
        };
        let near = |found: Vec<f64>, expected: [f64; 4]| {
            let is_near = found
                .iter()
                .zip(expected)
                .all(|(usd, other)| (usd - other).abs() < 1e-12);
            assert!(found.len() == 4 && is_near, "{found:?}");
        };
        near(parts(of("s3", &of_variant())), [0.48, 0.02, 0.1, 0.008]);
        // On another instance only the hour changes, of each of the four servers.
        let other = InstancePrice {
            name: "other".to_owned(),
            usd_per_hour: 0.9,
            checked: true,
        };
        near(parts(of("s3", &of_variant().on(&other))), [0.18, 0.02, 0.1, 0.008]);
        assert_eq!(of("no-price", &of_variant()), None);
        // No variant fits on its instance: none has a price, and that of a run without variants is no substitute.
        let none_fits = Pricing {
            priced: Some(PricedVariants::default()),
            ..pricing()
        };
        assert_eq!(of("s3", &none_fits), None);
    }

    #[test]
    fn a_full_instance_costs_the_same_by_its_hour_and_by_its_month() {
        let pricing = of_variant();
        let question = Question {
            objectives: Vec::new(),
            error_share: 0.001,
            demand: None,
            minimise: Minimise::UsdPer10k,
            mode: Mode::Realtime,
            batch_size: 1,
            budget_s: 600.0,
            confidence: 0.95,
            tie: 0.05,
            utilisation: 1.0,
            least_instances: 1,
            highest_rps: 1_000.0,
        };
        let used = TierUse {
            requests: 2.0,
            bytes: 4_096.0,
        };
        let month = monthly(&pricing.terms_by_variant["s3"], used, &question, 100.0);
        let cost = cost(&factors("s3", 1), &[repeat(100.0, delta())], &rate(100.0), &pricing).unwrap();
        assert!(
            (cost.usd_per_10k.value - month.usd_per_10k).abs() < 1e-12,
            "{cost:?} {month:?}"
        );
    }

    #[test]
    fn batches_spread_the_instance_over_more_inferences_and_capacity_counts() {
        let cost = cost(&factors("nfs", 10), &[repeat(100.0, None)], &rate(100.0), &pricing()).unwrap();
        assert!((cost.usd_per_10k.value - 0.015).abs() < 1e-12);
        assert_eq!(cost.parts[1].0, "tier capacity");
    }

    #[test]
    fn storage_is_paid_by_the_inferences_that_the_plan_counts() {
        // Requests of 8 rows that count as one inference each: 16 storage requests and 32,768 bytes for one.
        let sent = SentRequests {
            inferences_per_request: 1.0,
            mean_rows: Some(8.0),
            ..SentRequests::default()
        };
        let one = Repeat {
            sent: Some(sent),
            ..repeat(100.0, delta())
        };
        let cost = cost(&factors("s3", 8), std::slice::from_ref(&one), &rate(100.0), &pricing()).unwrap();
        let expected = 0.1 + 0.064 + 0.327_68;
        assert!((cost.usd_per_10k.value - expected).abs() < 1e-12, "{cost:?}");
        assert_eq!(tier_requests_per_inference(&[one]), Some(16.0));
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
    fn a_closed_loop_pays_by_what_it_was_answered() {
        let closed = Factors {
            offered_rps: 0.0,
            driven: Some(Driven::ClosedLoop {
                users: 4,
                think_time: "0 ms".into(),
            }),
            ..factors("s3", 2)
        };
        let cost = cost(&closed, &[repeat(80.0, delta())], &rate(80.0), &pricing()).unwrap();
        // $0.001/s over 160 inferences/s; requests and bytes cost the same as before.
        let expected = 0.062_5 + 0.008 + 0.040_96;
        assert!((cost.usd_per_10k.value - expected).abs() < 1e-12, "{cost:?}");
        assert!(cost.usd_per_10k.lo < expected && expected < cost.usd_per_10k.hi);
    }

    #[test]
    fn a_ramp_that_stopped_pays_by_the_time_in_which_it_offered() {
        let rates = RampRates {
            from: 0.0,
            to: 1_000.0,
            over: 1.0,
        };
        let ramp = Factors {
            offered_rps: rates.mean(),
            driven: Some(Driven::Ramp(rates)),
            ..factors("s3", 1)
        };
        // 800 requests in the 4 of 10 seconds before it stopped.
        let stopped = |stopped_rps| Repeat {
            scheduled: 800,
            driver: DriverFigures::Ramp {
                ramp: RampFigures {
                    answered: [0; RAMP_BLOCKS],
                    stopped_rps,
                },
            },
            ..repeat(80.0, delta())
        };
        assert!((answered_rps(&ramp, &stopped(Some(400.0))) - 200.0).abs() < 1e-9);
        assert_eq!(answered_rps(&ramp, &stopped(None)), 500.0);
    }

    #[test]
    fn a_journey_pays_for_all_its_requests() {
        let whole = Factors {
            driven: Some(Driven::Journey {
                name: "j".into(),
                step: None,
            }),
            ..factors("s3", 1)
        };
        let journeys = JourneyFigures {
            completed: 500,
            requests: 1_500,
        };
        let one = Repeat {
            driver: DriverFigures::Journeys { journeys, goose: None },
            ..repeat(100.0, delta())
        };
        let cost = |repeat| cost(&whole, &[repeat], &rate(100.0), &pricing());
        // Four storage requests and 8,192 bytes per journey, whatever each inference used.
        let expected = 0.1 + 0.016 + 0.081_92;
        let paid = cost(one.clone()).unwrap().usd_per_10k.value;
        assert!((paid - expected).abs() < 1e-12, "{paid}");
        // Results from before journeys were counted, and steps in which no journey ended.
        assert_eq!(cost(repeat(100.0, delta())), None);
        let none = JourneyFigures {
            completed: 0,
            requests: 9,
        };
        let none = DriverFigures::Journeys {
            journeys: none,
            goose: None,
        };
        assert_eq!(cost(Repeat { driver: none, ..one }), None);
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

    /// Part of a mix of two: 100 requests per second of this many rows each.
    fn part(rows: u32, share: MixShare) -> Option<Cost> {
        let factors = Factors {
            mix: Some("two".to_owned()),
            ..factors("s3", rows)
        };
        let repeat = Repeat {
            driver: DriverFigures::MixPart { mix_share: share },
            ..repeat(100.0, delta())
        };
        cost(&factors, &[repeat], &rate(100.0), &pricing())
    }

    #[test]
    fn the_parts_of_a_mix_pay_together_what_is_paid() {
        let share = |inferences, hour, tier| MixShare {
            inferences,
            hour,
            tier,
            hour_by: HourBy::InferenceTime,
        };
        // 100 and 300 inferences a second; the batches take a fifth of the hour and half of the tier's requests.
        let (single, batch) = (
            part(1, share(0.25, 0.8, 0.5)).unwrap(),
            part(3, share(0.75, 0.2, 0.5)).unwrap(),
        );
        let usd_per_s = (single.usd_per_10k.value * 100.0 + batch.usd_per_10k.value * 300.0) / 1e4;
        // $0.001 of the instance; 2 requests × $4e-7 and 4,096 B × $1e-9 for each of 400 inferences.
        assert!(
            (usd_per_s - (0.001 + 400.0 * (2.0 * 4e-7 + 4_096e-9))).abs() < 1e-12,
            "{usd_per_s}"
        );
        assert!((single.parts[0].1 - 0.08).abs() < 1e-12 && (single.parts[1].1 - 0.016).abs() < 1e-12);
        let unshared = Factors {
            mix: Some("two".to_owned()),
            ..factors("s3", 1)
        };
        let repeat = [repeat(100.0, delta())];
        assert_eq!(
            cost(&unshared, &repeat, &rate(100.0), &pricing()),
            None,
            "an older result"
        );
        assert_eq!(part(1, share(0.0, 0.0, 0.0)), None, "nothing of it was answered");
    }

    #[test]
    fn a_part_of_a_mix_has_the_hits_of_its_own_replies() {
        let mut mixed = repeat(100.0, delta());
        mixed.server.as_mut().unwrap().cache_hits = 900.0;
        assert_eq!(hit_ratio([&mixed]), Some(1.0));
        let mix_share = MixShare {
            inferences: 0.5,
            hour: 0.5,
            tier: 0.25,
            hour_by: HourBy::Inferences,
        };
        mixed.driver = DriverFigures::MixPart { mix_share };
        mixed.bands = vec![Band {
            name: "p0-50".to_owned(),
            count: 10,
            mean_us: 1.0,
            over_repeats_us: None,
            parts_us: Vec::new(),
            reads: Reads {
                cache_hits: 1.0,
                cache_misses: 3.0,
                ..Reads::default()
            },
        }];
        assert_eq!(hit_ratio([&mixed]), Some(0.25));
        assert_eq!(tier_requests_per_inference(&[mixed]), Some(1.0));
    }
}
