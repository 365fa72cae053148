//! Costs side by side: a point on several instances, and two tiers over the hit ratio of a cache.
//!
//! In: points and prices. Out: dollars per 10,000 inferences, and the hit ratio at which two tiers cost the same. Knows
//! nothing of latencies. Every instance is assumed to be as fast as the measured machine.

use super::cost::{Cost, cost, hit_ratio, parts};
use super::monthly::HOURS;
use crate::curve::{Curve, grouped};
use crate::record::{InstancePrice, Interval, Point, Pricing, Repeat, counted};
use crate::statistics::bisect;
use crate::statistics::sections::mean_interval;

/// Returns the cost of a point on each instance of the prices, in their order; `None` if the tier is not available on
/// it.
pub fn side_by_side<'a>(point: &Point, pricing: &'a Pricing) -> Vec<(&'a InstancePrice, Option<Cost>)> {
    let summary = point.summary.as_ref();
    let on = |instance: &InstancePrice| {
        let summary = summary.filter(|_| is_available(pricing, point.factors.label(), instance));
        let rate = &summary?.achieved_rps;
        cost(&point.factors, &counted(&point.repeats), rate, &pricing.on(instance))
    };
    let instances = pricing.instances.iter();
    instances.map(|instance| (instance, on(instance))).collect()
}

fn is_available(pricing: &Pricing, tier: &str, instance: &InstancePrice) -> bool {
    let names = pricing.instances_by_tier.get(tier);
    names.is_none_or(|names| names.contains(&instance.name))
}

/// Cost of a tier at one rate over the hit ratio of a cache in front of it, interpolated through the measured cache
/// states. Each state has its own cost of a miss, because a cache that fetches blocks may read far more than a row per
/// miss. Between two states the hourly cost and the cost of a miss are linear; outside them they equal those of the
/// nearest state.
#[derive(Debug, Clone, PartialEq)]
pub struct CostLine {
    /// Name of the tier.
    pub tier: String,
    /// Cheapest instance on which the tier is available.
    pub instance: String,
    /// Measured states by rising hit ratio; at least one.
    pub states: Vec<CacheState>,
}

/// Measured cache state of a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheState {
    /// Share of blocks found in the cache.
    pub hit_ratio: f64,
    /// Hourly costs, in dollars per 10,000 inferences.
    pub hourly_usd: f64,
    /// Cost of requests and bytes if every row missed, in dollars per 10,000 inferences.
    pub misses_usd: f64,
    /// Hit ratio, hourly and miss costs of each repeat, by its index.
    repeats: Vec<(u32, [f64; 3])>,
}

impl CostLine {
    /// Returns dollars per 10,000 inferences at a hit ratio.
    pub fn at(&self, hit_ratio: f64) -> f64 {
        let figures = |state: &CacheState| [state.hit_ratio, state.hourly_usd, state.misses_usd];
        at(self.states.iter().map(figures), hit_ratio)
    }

    /// Returns hit ratio, hourly and miss costs of one repeat in each state; `None` if a state lacks the repeat.
    fn in_repeat(&self, index: u32) -> Option<Vec<[f64; 3]>> {
        let of = |state: &CacheState| Some(state.repeats.iter().find(|(repeat, _)| *repeat == index)?.1);
        self.states.iter().map(of).collect()
    }
}

/// Returns dollars at a hit ratio, from states given as hit ratio, hourly and miss costs.
fn at(states: impl IntoIterator<Item = [f64; 3]>, hit_ratio: f64) -> f64 {
    let (mut below, mut above) = (None, None);
    for state in states {
        if state[0] <= hit_ratio {
            below = Some(state);
        } else if above.is_none() {
            above = Some(state);
        }
    }
    let [hourly, misses] = match (below, above) {
        (Some(low), Some(high)) => {
            let share = (hit_ratio - low[0]) / (high[0] - low[0]);
            [1, 2].map(|part| low[part] + share * (high[part] - low[part]))
        }
        (Some(one), None) | (None, Some(one)) => [one[1], one[2]],
        (None, None) => [0.0, 0.0],
    };
    hourly + (1.0 - hit_ratio) * misses
}

/// Returns the lines of the tiers of some curves at a rate, in the order in which tiers first appear.
pub fn lines(curves: &[Curve<'_>], offered_rps: f64, pricing: &Pricing) -> Vec<CostLine> {
    let points = curves.iter().filter_map(|curve| curve.valid_at(offered_rps));
    let tiers = grouped(points.map(|point| (point.factors.label(), point))).into_iter();
    let lines = tiers.filter_map(|(tier, points)| line(tier, &points, pricing));
    lines.collect()
}

fn line(tier: &str, points: &[&Point], pricing: &Pricing) -> Option<CostLine> {
    let instances = pricing.instances.iter();
    let available = instances.filter(|instance| is_available(pricing, tier, instance));
    let hourly = |instance: &InstancePrice| match pricing.on(instance).terms_by_variant.get(tier) {
        Some(terms) => terms.usd_per_instance_hour + terms.usd_per_instance_month / HOURS,
        None => instance.usd_per_hour,
    };
    let cheapest = available.min_by(|a, b| hourly(a).total_cmp(&hourly(b)))?;
    let on = pricing.on(cheapest);
    let mut states: Vec<CacheState> = points.iter().map(|point| state(point, &on)).collect::<Option<_>>()?;
    states.sort_by(|a, b| a.hit_ratio.total_cmp(&b.hit_ratio));
    // Without misses the cost of a miss is unknown.
    if states.iter().any(|state| state.hit_ratio < 1.0) {
        states.retain(|state| state.hit_ratio < 1.0);
    }
    (!states.is_empty()).then(|| CostLine {
        tier: tier.to_owned(),
        instance: cheapest.name.clone(),
        states,
    })
}

fn state(point: &Point, pricing: &Pricing) -> Option<CacheState> {
    let of = |repeat: &Repeat| {
        let parts = parts(&point.factors, repeat, pricing)?;
        let hits = hit_ratio([repeat]).unwrap_or(0.0);
        let misses = parts[3] + parts[4];
        let per_miss = if hits < 1.0 { misses / (1.0 - hits) } else { 0.0 };
        Some((repeat.index, [hits, parts[..3].iter().sum(), per_miss]))
    };
    let repeats: Vec<(u32, [f64; 3])> = counted(&point.repeats).iter().map(of).collect::<Option<_>>()?;
    let count = repeats.len().max(1) as f64;
    let mean = |part: usize| repeats.iter().map(|(_, of)| of[part]).sum::<f64>() / count;
    Some(CacheState {
        hit_ratio: mean(0),
        hourly_usd: mean(1),
        misses_usd: mean(2),
        repeats,
    })
}

/// Comparison of two tiers over the hit ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BreakEven {
    /// Equal cost at this hit ratio; below it the first is cheaper if `first_below`, above it the other.
    At {
        /// Hit ratio with its interval over the repeats.
        hit_ratio: Interval,
        /// True if the first tier is cheaper below the hit ratio.
        first_below: bool,
    },
    /// First tier cheaper at every hit ratio.
    First,
    /// Second tier cheaper at every hit ratio.
    Second,
    /// Difference below 0.1 % at every hit ratio.
    Same,
}

/// Returns the hit ratio at which two lines cross; the highest if they cross more than once.
pub fn break_even(a: &CostLine, b: &CostLine) -> BreakEven {
    let (cold, hot) = (a.at(0.0) - b.at(0.0), a.at(1.0) - b.at(1.0));
    let small = |difference: f64, hit_ratio: f64| difference.abs() <= 1e-3 * a.at(hit_ratio).max(b.at(hit_ratio));
    match (small(cold, 0.0), small(hot, 1.0)) {
        (true, true) => return BreakEven::Same,
        (_, true) => return cheaper(cold),
        (true, _) => return cheaper(hot),
        _ => {}
    }
    let Some(value) = crossing(|hit_ratio| a.at(hit_ratio) - b.at(hit_ratio)) else {
        return cheaper(cold);
    };
    let indices = a.states[0].repeats.iter().map(|(index, _)| *index);
    let in_repeat = |index: u32| {
        let (a, b) = (a.in_repeat(index)?, b.in_repeat(index)?);
        crossing(|hit_ratio| at(a.iter().copied(), hit_ratio) - at(b.iter().copied(), hit_ratio))
    };
    let each: Vec<f64> = indices.filter_map(in_repeat).collect();
    let interval = mean_interval(&each).unwrap_or(Interval::exact(value));
    BreakEven::At {
        hit_ratio: Interval::new(value, interval.lo.clamp(0.0, value), interval.hi.clamp(value, 1.0)),
        first_below: hot > 0.0,
    }
}

/// Returns the highest argument from 0 to 1 at which a difference changes its sign, within 1e-12.
fn crossing(difference: impl Fn(f64) -> f64) -> Option<f64> {
    const STEPS: u32 = 400;
    let argument = |step: u32| f64::from(step) / f64::from(STEPS);
    let side = difference(1.0) > 0.0;
    let is_below = |at: f64| (difference(at) > 0.0) != side;
    let step = (0..STEPS).rev().find(|step| is_below(argument(*step)))?;
    let (low, high) = bisect((argument(step), argument(step + 1)), 40, is_below);
    Some(f64::midpoint(low, high))
}

fn cheaper(difference: f64) -> BreakEven {
    match difference < 0.0 {
        true => BreakEven::First,
        false => BreakEven::Second,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(states: &[(f64, f64, &[f64])]) -> CostLine {
        let state = |&(hit_ratio, hourly, misses): &(f64, f64, &[f64])| CacheState {
            hit_ratio,
            hourly_usd: hourly,
            misses_usd: misses.iter().sum::<f64>() / misses.len() as f64,
            repeats: (0..)
                .zip(misses.iter().map(|misses| [hit_ratio, hourly, *misses]))
                .collect(),
        };
        CostLine {
            tier: "t".into(),
            instance: "i".into(),
            states: states.iter().map(state).collect(),
        }
    }

    fn line(hourly: f64, misses: &[f64]) -> CostLine {
        cached(&[(0.0, hourly, misses)])
    }

    #[test]
    fn a_line_passes_through_every_state_and_crosses_by_what_a_miss_costs_there() {
        // Without a cache a miss reads a row of 644 B; with a cache it reads a block of 4.2 kB, 6.5 times as much.
        let s3 = cached(&[(0.0, 0.02, &[0.25; 3]), (0.9, 0.021, &[1.63; 3])]);
        assert!((s3.at(0.0) - 0.27).abs() < 1e-12 && (s3.at(0.9) - (0.021 + 0.163)).abs() < 1e-12);
        let disk = line(0.031, &[0.0; 3]);
        let BreakEven::At { hit_ratio, first_below } = break_even(&s3, &disk) else {
            panic!("no crossing")
        };
        // 0.021 + (1 - h) × 1.63 = 0.031; by the cost of a miss without a cache it would be 95.6 %.
        assert!(
            (hit_ratio.value - (1.0 - 0.01 / 1.63)).abs() < 1e-9 && !first_below,
            "{hit_ratio:?}"
        );
        // A measured state in between agrees with the break-even.
        assert!(s3.at(0.96) > disk.at(0.96));
    }

    #[test]
    fn a_cheap_hour_with_dear_requests_breaks_even_where_arithmetic_says() {
        // $0.02 + (1 - h) × $0.04 equals $0.03 at h = 0.75.
        let (s3, disk) = (line(0.02, &[0.04; 3]), line(0.03, &[0.0; 3]));
        let BreakEven::At { hit_ratio, first_below } = break_even(&s3, &disk) else {
            panic!("no crossing")
        };
        assert!((hit_ratio.value - 0.75).abs() < 1e-9 && !first_below);
        assert!((s3.at(0.75) - disk.at(0.75)).abs() < 1e-12);
        assert!((hit_ratio.hi - hit_ratio.lo) < 1e-9);
        assert!(matches!(
            break_even(&disk, &s3),
            BreakEven::At { first_below: true, .. }
        ));
    }

    #[test]
    fn repeats_that_differ_give_an_interval() {
        let (s3, disk) = (line(0.02, &[0.038, 0.04, 0.042]), line(0.03, &[0.0; 3]));
        let BreakEven::At { hit_ratio, .. } = break_even(&s3, &disk) else {
            panic!("no crossing")
        };
        assert!(
            hit_ratio.lo < 0.75 && 0.75 < hit_ratio.hi && hit_ratio.hi < 0.8,
            "{hit_ratio:?}"
        );
    }

    #[test]
    fn who_is_cheaper_everywhere_is_said_and_equals_are_equal() {
        assert_eq!(break_even(&line(0.02, &[0.01]), &line(0.05, &[0.0])), BreakEven::First);
        assert_eq!(break_even(&line(0.05, &[0.0]), &line(0.02, &[0.01])), BreakEven::Second);
        assert_eq!(break_even(&line(0.02, &[0.0]), &line(0.02, &[0.0])), BreakEven::Same);
        // Same hourly cost, dearer misses: never cheaper, and equal if nothing misses.
        assert_eq!(break_even(&line(0.02, &[0.04]), &line(0.02, &[0.0])), BreakEven::Second);
    }
}
