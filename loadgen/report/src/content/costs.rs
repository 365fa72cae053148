//! Costs: each curve on several instances, break-evens of tiers over the hit ratio of a cache, shares of a mix.
//!
//! In: a run and the curves of a group. Out: figures and plain text for every renderer.

use super::best::best;
use super::labels;
use super::point_row::Tier;
use super::table::{Cell, Table, figures, text};
use crate::units::{dollars, dollars_interval, percent, rate};
use tierlab_analysis::costs::cost::Cost;
use tierlab_analysis::costs::economics::{BreakEven, CostLine, break_even, lines, side_by_side};
use tierlab_analysis::curves::{Curve, common_rate};
use tierlab_analysis::record::{HourBy, InstancePrice, Point, Pricing, Run};

/// Assumption behind the prices of several instances.
pub(crate) const SIDE_BY_SIDE: &str =
    "Every instance is assumed to be as fast as the measured machine: the columns compare hourly prices, not speed.";

/// Costs of the curves of a group.
pub(crate) struct Costs {
    /// Each curve at its best point on the instances that the plan chose, that a variant is priced on, or that are the cheapest
    /// of a tier; `None` for fewer than two instances.
    pub(crate) on_instances: Option<Table>,
    /// Tiers over the hit ratio of a cache; `None` for fewer than two.
    pub(crate) over_hit_ratio: Option<OverHitRatio>,
    /// Break-even of each tier with the winner, in a sentence.
    pub(crate) break_evens: Vec<String>,
}

/// Tiers over the hit ratio of a cache.
pub(crate) struct OverHitRatio {
    /// Rate that the curves have in common.
    pub(crate) rps: f64,
    /// A line per tier, the winner first: the best of the answer, or else the cheapest without a cache.
    pub(crate) lines: Vec<CostLine>,
}

impl Costs {
    /// Costs of the curves of a group; `None` without prices.
    pub(crate) fn of(run: &Run, curves: &[Curve<'_>]) -> Option<Self> {
        let pricing = run.pricing.as_ref()?;
        let over_hit_ratio = over_hit_ratio(run, pricing, curves);
        let break_evens = over_hit_ratio.as_ref().map(|over| break_evens(run, over));
        Some(Self {
            on_instances: on_instances(run, pricing, curves, &priced_on(pricing, over_hit_ratio.as_ref())),
            break_evens: break_evens.unwrap_or_default(),
            over_hit_ratio,
        })
    }
}

fn on_instances(run: &Run, pricing: &Pricing, curves: &[Curve<'_>], priced_on: &[&str]) -> Option<Table> {
    let is_priced = |instance: &&InstancePrice| priced_on.contains(&instance.name.as_str());
    let instances: Vec<&InstancePrice> = pricing.instances.iter().filter(is_priced).collect();
    let row = |curve: &Curve<'_>| {
        let best = best(run, curve)?;
        let costs = side_by_side(best.point, pricing).into_iter();
        let costs = costs.filter(|(instance, _)| is_priced(instance));
        let text = |cost: Cost| format!("{}{}", best.bound(), dollars_interval(Some(&cost.usd_per_10k)));
        let costs = costs.map(|(_, cost)| Cell::split_or_none(cost.map(text)));
        let tier = Tier::of(run, curve.factors().label()).cell();
        let subject = [tier, labels::cache(curve.factors()).into(), best.text().into()];
        Some(subject.into_iter().chain(costs).collect::<Vec<Cell>>())
    };
    let price = |instance: &&InstancePrice| {
        let unchecked = if instance.checked { "" } else { ", unchecked" };
        let usd = dollars(instance.usd_per_hour);
        figures(format!("{}, {usd}/h{unchecked}", instance.name))
    };
    let columns = [text("tier"), text("cache"), figures("at")].into_iter();
    let columns = columns.chain(instances.iter().map(price));
    let table = Table::section("Costs by instance", "", columns, curves.iter().filter_map(row));
    table.filter(|_| instances.len() > 1)
}

/// Names of the instances that anything is priced on.
fn priced_on<'a>(pricing: &'a Pricing, over: Option<&'a OverHitRatio>) -> Vec<&'a str> {
    let variants = pricing.terms_by_variant.values().map(|terms| terms.instance.as_str());
    let cheapest = over.into_iter().flat_map(|over| &over.lines);
    let cheapest = cheapest.map(|line| line.instance.as_str());
    let chosen = std::iter::once(pricing.instance.as_str());
    chosen.chain(variants).chain(cheapest).collect()
}

/// Cost share of each curve that is a part of a mix, at its highest rate; empty for curves that were measured alone.
pub(crate) fn mix_shares(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut hour_by = None;
    for curve in curves {
        let point = best(run, curve).map(|best| best.point);
        let share = |point: &Point| point.summary.as_ref()?.mix_share;
        let Some((point, share)) = point.and_then(|point| Some((point, share(point)?))) else {
            continue;
        };
        hour_by = hour_by.max(Some(share.hour_by));
        let (tier, cache) = (
            labels::tier(run, curve.factors().label()),
            labels::cache(curve.factors()),
        );
        let [hour, of_tier, inferences] = [share.hour, share.tier, share.inferences].map(percent);
        let rps = rate(point.factors.offered_rps);
        sentences.push(format!(
            "{tier} {cache} pays {hour} of the hour and {of_tier} of the tier for {inferences} of the inferences at {rps} rps"
        ));
    }
    let Some(hour_by) = hour_by else { return sentences };
    let by = match hour_by {
        HourBy::InferenceTime => "their inference time",
        HourBy::Inferences => "their inferences, because replies did not report inference times",
    };
    let rule = format!(
        "The parts of a mix share the costs: the hour (instance, cache memory, tier capacity) by {by}, storage requests and bytes by the \
         tier requests that their replies report; together they pay the total"
    );
    sentences.insert(0, rule);
    sentences
}

/// Lines of a group at the rate that its curves have in common; `None` without such a rate, or if all misses are free.
fn over_hit_ratio(run: &Run, pricing: &Pricing, curves: &[Curve<'_>]) -> Option<OverHitRatio> {
    let rps = common_rate(&curves.iter().collect::<Vec<_>>())?;
    let mut lines = lines(curves, rps, pricing);
    let best = run.answer.as_ref().and_then(|answer| answer.best.as_ref());
    let is_best = |line: &CostLine| best.is_some_and(|best| *best == line.tier);
    lines.sort_by(|a, b| is_best(b).cmp(&is_best(a)).then(a.at(0.0).total_cmp(&b.at(0.0))));
    // Hits change nothing if misses are free.
    let has_price = |line: &CostLine| line.states.iter().any(|state| state.misses_usd > 0.0);
    (lines.len() > 1 && lines.iter().any(has_price)).then_some(OverHitRatio { rps, lines })
}

/// Break-even of each tier with the winner, in a sentence.
fn break_evens(run: &Run, over: &OverHitRatio) -> Vec<String> {
    let describe = |other| sentence(run, &over.lines[0], other, over.rps);
    over.lines.iter().skip(1).map(describe).collect()
}

fn sentence(run: &Run, a: &CostLine, b: &CostLine, rps: f64) -> String {
    let subject = |line: &CostLine| format!("{} on {}", labels::tier(run, &line.tier), line.instance);
    let (first, second) = (subject(a), subject(b));
    let what = match break_even(a, b) {
        BreakEven::At { hit_ratio, first_below } => {
            let (below, above) = if first_below { (a, b) } else { (b, a) };
            let [value, lo, hi] = [hit_ratio.value, hit_ratio.lo, hit_ratio.hi].map(percent);
            let interval = match hit_ratio.hi > hit_ratio.lo {
                true => format!(" [{lo}–{hi}]"),
                false => String::new(),
            };
            let (below, above) = (&below.tier, &above.tier);
            format!("cost the same at a hit ratio of {value}{interval}; below it {below} is cheaper, above it {above}")
        }
        BreakEven::First => format!("never cost the same: {} is cheaper at every hit ratio", a.tier),
        BreakEven::Second => format!("never cost the same: {} is cheaper at every hit ratio", b.tier),
        BreakEven::Same => "cost the same at every hit ratio".to_owned(),
    };
    format!("At {} rps {first} and {second} {what}", rate(rps))
}
