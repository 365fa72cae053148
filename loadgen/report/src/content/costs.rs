//! Costs: each curve on the instances that are considered; from which hit ratio on a tier is cheaper than the winner; shares of a mix.
//!
//! In: a run and the curves of a group. Out: figures and plain text for every renderer.

use super::best::{Best, best};
use super::words;
use crate::units::{percent, rate};
use tierlab_analysis::costs::economics::{BreakEven, Line, break_even, lines, side_by_side};
use tierlab_analysis::curves::{Curve, common_rate};
use tierlab_analysis::record::{HourBy, InstancePrice, Interval, Pricing, Run};

/// What the prices of several instances mean.
pub(crate) const SIDE_BY_SIDE: &str = "Every instance is taken to do what the measured machine did: the columns say what the \
                                       hour costs, not what the instance could do.";

/// What the curves of a group cost.
pub(crate) struct Costs<'a> {
    /// Instances that the plan chose, that a variant is priced on, or that are the cheapest for a tier.
    pub(crate) instances: Vec<&'a InstancePrice>,
    /// The curves at the points that stand for them, those without one left out.
    pub(crate) rows: Vec<CostRow<'a>>,
    /// The tiers over the hit ratio of a cache; absent with fewer than two.
    pub(crate) over_hit_ratio: Option<OverHitRatio>,
    /// A sentence for every tier beside the winner.
    pub(crate) break_evens: Vec<String>,
}

/// A curve's costs.
pub(crate) struct CostRow<'a> {
    /// Its tier as printed.
    pub(crate) tier: String,
    /// Its cache state with its size.
    pub(crate) cache: String,
    /// The point that stands for it.
    pub(crate) best: Best<'a>,
    /// $/10k inferences on each of [`Costs::instances`]; absent where it cannot be had there.
    pub(crate) on: Vec<Option<Interval>>,
}

/// Tiers over the hit ratio of a cache.
pub(crate) struct OverHitRatio {
    /// The rate that the curves have in common.
    pub(crate) rps: f64,
    /// A line for every tier, the winner first: the best of the answer, or else the cheapest without a cache.
    pub(crate) lines: Vec<Line>,
}

impl<'a> Costs<'a> {
    /// Of the curves of a group; `None` without prices.
    pub(crate) fn of(run: &'a Run, curves: &[Curve<'a>]) -> Option<Self> {
        let pricing = run.pricing.as_ref()?;
        let over_hit_ratio = over_hit_ratio(run, pricing, curves);
        let considered = considered(pricing, over_hit_ratio.as_ref());
        let rows = curves.iter().filter_map(|curve| {
            let best = best(run, curve)?;
            let factors = curve.factors();
            let on = side_by_side(best.point, pricing).into_iter();
            let on = on.filter(|(instance, _)| considered.contains(&instance.name.as_str()));
            Some(CostRow {
                tier: words::tier(run, factors.label()),
                cache: words::cache(factors),
                best,
                on: on.map(|(_, cost)| Some(cost?.usd_per_10k)).collect(),
            })
        });
        let instances = pricing.instances.iter();
        Some(Self {
            instances: instances
                .filter(|instance| considered.contains(&instance.name.as_str()))
                .collect(),
            rows: rows.collect(),
            break_evens: over_hit_ratio
                .as_ref()
                .map(|over| break_evens(run, over))
                .unwrap_or_default(),
            over_hit_ratio,
        })
    }
}

/// Names of the instances that anything is priced on.
fn considered<'a>(pricing: &'a Pricing, over: Option<&'a OverHitRatio>) -> Vec<&'a str> {
    let variants = pricing.terms_by_variant.values().map(|terms| terms.instance.as_str());
    let cheapest = over.into_iter().flat_map(|over| &over.lines);
    let cheapest = cheapest.map(|line| line.instance.as_str());
    std::iter::once(pricing.instance.as_str())
        .chain(variants)
        .chain(cheapest)
        .collect()
}

/// Who pays for what, where the curves of a group are parts of a mix, each at its highest rate; nothing where they were
/// measured alone.
pub(crate) fn mix_shares(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let mut said = Vec::new();
    let mut hour_by = None;
    for curve in curves {
        let Some(point) = best(run, curve).map(|best| best.point) else {
            continue;
        };
        let Some(share) = point.summary.as_ref().and_then(|summary| summary.mix_share) else {
            continue;
        };
        hour_by = hour_by.max(Some(share.hour_by));
        said.push(format!(
            "{} {} pays {} of the hour and {} of the tier for {} of the inferences at {} rps",
            words::tier(run, curve.factors().label()),
            words::cache(curve.factors()),
            percent(share.hour),
            percent(share.tier),
            percent(share.inferences),
            rate(point.factors.offered_rps)
        ));
    }
    let Some(hour_by) = hour_by else { return said };
    let by = match hour_by {
        HourBy::InferenceTime => "the time that their requests spent in inference",
        HourBy::Inferences => "their inferences, since replies did not tell the time in inference",
    };
    let rule = format!(
        "The parts of a mix share what is paid: the hour (instance, cache memory, tier capacity) by {by}, storage requests \
         and bytes by the tier requests that their replies tell; together they pay the whole"
    );
    said.insert(0, rule);
    said
}

/// The lines of a group at the rate that its curves have in common; nothing without such a rate.
fn over_hit_ratio(run: &Run, pricing: &Pricing, curves: &[Curve<'_>]) -> Option<OverHitRatio> {
    let rps = common_rate(&curves.iter().collect::<Vec<_>>())?;
    let mut lines = lines(curves, rps, pricing);
    let best = run.answer.as_ref().and_then(|answer| answer.best.as_ref());
    let is_best = |line: &Line| best.is_some_and(|best| *best == line.tier);
    lines.sort_by(|a, b| is_best(b).cmp(&is_best(a)).then(a.at(0.0).total_cmp(&b.at(0.0))));
    (lines.len() > 1).then_some(OverHitRatio { rps, lines })
}

/// A sentence for every tier beside the winner.
fn break_evens(run: &Run, over: &OverHitRatio) -> Vec<String> {
    let Some((winner, others)) = over.lines.split_first() else {
        return Vec::new();
    };
    others
        .iter()
        .map(|other| sentence(run, winner, other, over.rps))
        .collect()
}

/// A hit ratio: what lies near all hits has a digit more, since the rest is what is paid for.
fn hits(ratio: f64) -> String {
    if ratio > 0.95 && ratio < 1.0 {
        format!("{:.1} %", 100.0 * ratio)
    } else {
        percent(ratio)
    }
}

fn sentence(run: &Run, a: &Line, b: &Line, rps: f64) -> String {
    let who = |line: &Line| format!("{} on {}", words::tier(run, &line.tier), line.instance);
    let (first, second) = (who(a), who(b));
    let what = match break_even(a, b) {
        BreakEven::At { hit_ratio, first_below } => {
            let (below, above) = if first_below { (a, b) } else { (b, a) };
            let interval = if hit_ratio.hi > hit_ratio.lo {
                format!(" [{}–{}]", hits(hit_ratio.lo), hits(hit_ratio.hi))
            } else {
                String::new()
            };
            format!(
                "cost the same at a hit ratio of {}{interval}; below it {} is cheaper, above it {}",
                hits(hit_ratio.value),
                below.tier,
                above.tier
            )
        }
        BreakEven::First => format!("never cross: {} is the cheaper at every hit ratio", a.tier),
        BreakEven::Second => format!("never cross: {} is the cheaper at every hit ratio", b.tier),
        BreakEven::Same => "cost the same at every hit ratio".to_owned(),
    };
    format!("At {} rps {first} and {second} {what}", rate(rps))
}
