//! Costs side by side: a point on several instances, and tiers against each other over the hit ratio of a cache.
//!
//! In: points and prices. Out: dollars per 10,000 inferences, and the hit ratio at which two tiers cost the same. Knows
//! nothing of latencies. Every instance is taken to do what the measured machine did.

use super::cost::{Cost, cost, hit_ratio, parts};
use super::curves::Curve;
use super::sections::mean_interval;
use crate::record::{InstancePrice, Interval, Point, Pricing, Summary};

/// The cost of a point on each instance of the prices, in their order; `None` where the tier cannot be had on it.
#[must_use]
pub fn side_by_side<'a>(point: &Point, pricing: &'a Pricing) -> Vec<(&'a InstancePrice, Option<Cost>)> {
    let rate = point.summary.as_ref().map(|summary: &Summary| summary.achieved_rps);
    let on = |instance: &InstancePrice| {
        can_be_had(pricing, &point.factors.tier, instance)
            .then(|| cost(&point.factors, &point.repeats, &rate?, &pricing.on(instance)))
            .flatten()
    };
    let instances = pricing.instances.iter();
    instances.map(|instance| (instance, on(instance))).collect()
}

fn can_be_had(pricing: &Pricing, tier: &str, instance: &InstancePrice) -> bool {
    let names = pricing.instances_by_tier.get(tier);
    names.is_none_or(|names| names.contains(&instance.name))
}

/// What a tier costs at one rate as a straight line over the hit ratio of a cache in front of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The tier.
    pub tier: String,
    /// The cheapest instance that it can be had on.
    pub instance: String,
    /// Dollars per 10,000 inferences of the hour, whatever the hit ratio.
    pub hourly_usd: Interval,
    /// Dollars per 10,000 inferences of requests and bytes if every row missed.
    pub misses_usd: Interval,
    repeats: Vec<(u32, f64, f64)>,
}

impl Line {
    /// Dollars per 10,000 inferences at a hit ratio.
    #[must_use]
    pub fn at(&self, hit_ratio: f64) -> f64 {
        self.hourly_usd.value + (1.0 - hit_ratio) * self.misses_usd.value
    }
}

/// The lines of the tiers of some curves at a rate, in the order in which tiers first appear. What a miss costs is taken
/// from the tier's point with the lowest hit ratio, where the most misses were counted.
#[must_use]
pub fn lines(curves: &[Curve<'_>], offered_rps: f64, pricing: &Pricing) -> Vec<Line> {
    let mut lowest: Vec<(&Point, f64)> = Vec::new();
    for curve in curves {
        let Some(point) = curve.valid_at(offered_rps) else {
            continue;
        };
        let hits = point
            .summary
            .as_ref()
            .and_then(|summary| summary.cache_hit_ratio)
            .unwrap_or(0.0);
        match lowest
            .iter_mut()
            .find(|(known, _)| known.factors.tier == point.factors.tier)
        {
            Some(known) if hits < known.1 => *known = (point, hits),
            Some(_) => {}
            None => lowest.push((point, hits)),
        }
    }
    lowest
        .into_iter()
        .filter_map(|(point, _)| line(point, pricing))
        .collect()
}

fn line(point: &Point, pricing: &Pricing) -> Option<Line> {
    let tier = &point.factors.tier;
    let cheapest = pricing
        .instances
        .iter()
        .filter(|instance| can_be_had(pricing, tier, instance))
        .min_by(|a, b| a.usd_per_hour.total_cmp(&b.usd_per_hour))?;
    let on = pricing.on(cheapest);
    let repeats: Vec<(u32, f64, f64)> = point
        .repeats
        .iter()
        .map(|repeat| {
            let parts = parts(&point.factors, repeat, &on)?;
            let missed = 1.0 - hit_ratio([repeat]).unwrap_or(0.0);
            let misses = parts[3] + parts[4];
            let per_miss = if missed > 0.0 { misses / missed } else { 0.0 };
            Some((repeat.index, parts[..3].iter().sum(), per_miss))
        })
        .collect::<Option<_>>()?;
    Some(Line {
        tier: tier.clone(),
        instance: cheapest.name.clone(),
        hourly_usd: over(repeats.iter().map(|(_, hourly, _)| *hourly))?,
        misses_usd: over(repeats.iter().map(|(.., misses)| *misses))?,
        repeats,
    })
}

/// A mean with Student's interval; a single value is its own.
fn over(values: impl Iterator<Item = f64>) -> Option<Interval> {
    let values: Vec<f64> = values.collect();
    let single = values.first().copied()?;
    Some(mean_interval(&values).unwrap_or(Interval {
        value: single,
        lo: single,
        hi: single,
    }))
}

/// How two tiers compare over the hit ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BreakEven {
    /// They cost the same at this hit ratio; below it the first is cheaper where `first_below`, above it the other.
    At {
        /// With its interval over the repeats.
        hit_ratio: Interval,
        /// Which side is whose.
        first_below: bool,
    },
    /// The first is cheaper at every hit ratio.
    First,
    /// The second is.
    Second,
    /// They cost the same wherever they differ by less than a thousandth.
    Same,
}

/// The hit ratio at which two lines cross: `1 - (hourly_b - hourly_a) / (misses_a - misses_b)`.
#[must_use]
pub fn break_even(a: &Line, b: &Line) -> BreakEven {
    let crossing = |hourly: (f64, f64), misses: (f64, f64)| 1.0 - (hourly.1 - hourly.0) / (misses.0 - misses.1);
    let (cold, hot) = (a.at(0.0) - b.at(0.0), a.at(1.0) - b.at(1.0));
    let small = |difference: f64, hit_ratio: f64| difference.abs() <= 1e-3 * a.at(hit_ratio).max(b.at(hit_ratio));
    match (small(cold, 0.0), small(hot, 1.0)) {
        (true, true) => BreakEven::Same,
        (_, true) => if_less(cold),
        (true, _) => if_less(hot),
        _ if cold.signum() == hot.signum() => if_less(cold),
        _ => {
            let value = crossing(
                (a.hourly_usd.value, b.hourly_usd.value),
                (a.misses_usd.value, b.misses_usd.value),
            );
            let each: Vec<f64> = a
                .repeats
                .iter()
                .filter_map(|(index, hourly, misses)| {
                    let other = b.repeats.iter().find(|(other, ..)| other == index)?;
                    Some(crossing((*hourly, other.1), (*misses, other.2)))
                })
                .collect();
            let interval = mean_interval(&each).unwrap_or(Interval {
                value,
                lo: value,
                hi: value,
            });
            BreakEven::At {
                hit_ratio: Interval {
                    value,
                    lo: interval.lo.clamp(0.0, value),
                    hi: interval.hi.clamp(value, 1.0),
                },
                first_below: cold < 0.0,
            }
        }
    }
}

fn if_less(difference: f64) -> BreakEven {
    if difference < 0.0 {
        BreakEven::First
    } else {
        BreakEven::Second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(hourly: f64, misses: &[f64]) -> Line {
        Line {
            tier: "t".into(),
            instance: "i".into(),
            hourly_usd: over(misses.iter().map(|_| hourly)).unwrap(),
            misses_usd: over(misses.iter().copied()).unwrap(),
            repeats: misses
                .iter()
                .zip(0..)
                .map(|(misses, index)| (index, hourly, *misses))
                .collect(),
        }
    }

    #[test]
    fn a_cheap_hour_with_dear_requests_breaks_even_where_arithmetic_says() {
        // $0.02 + (1 - h) × $0.04 equals $0.03 at h = 0.75.
        let (s3, disk) = (line(0.02, &[0.04; 3]), line(0.03, &[0.0; 3]));
        let BreakEven::At { hit_ratio, first_below } = break_even(&s3, &disk) else {
            panic!("no crossing")
        };
        assert!((hit_ratio.value - 0.75).abs() < 1e-12 && !first_below);
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
        // Same hour, dearer misses: never cheaper, and as cheap where nothing misses.
        assert_eq!(break_even(&line(0.02, &[0.04]), &line(0.02, &[0.0])), BreakEven::Second);
    }
}
