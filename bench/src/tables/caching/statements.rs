//! Statements from repeats. In: the figures of each repeat. Out: figures with 95 % intervals over the repeats. Pure.

use super::measure::{CacheCase, CachingRepeat, ComputedHits};
use super::plan::{CachingPrices, Settings};
use super::play::{Law, warm_up};
use super::strategy::{Ram, Strategy, share_text};
use crate::rounds::{geometric_mean, lowest, mean, mean_share, negated, percentile, student};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Interval, samples_needed};
use tierlab_instrument::prices::HOURS_PER_MONTH;
use tierlab_instrument::units::{NONE, dollars, dollars_interval, spread};

/// Figures of one strategy on one tier under one law.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CachingStatement {
    pub(super) tier: String,
    pub(super) law: Law,
    /// Look-ups in flight.
    pub(super) depth: usize,
    pub(super) strategy: Strategy,
    pub(super) name: String,
    pub(super) repeats: usize,
    pub(super) lookups: u64,
    /// Look-ups skipped for lack of time.
    pub(super) left_out: u64,
    pub(super) hit_ratio: Interval,
    /// Hit ratio of the policy over the same look-ups in order: LRU by stack distances, TinyLFU by the server's cache.
    pub(super) computed_hit_ratio: Option<Interval>,
    /// Hit ratio of the best possible policy in the same memory, over the same look-ups.
    pub(super) best_hit_ratio: Option<Interval>,
    /// Latency of a look-up; `None` with too few look-ups.
    pub(super) p50_us: Option<Interval>,
    pub(super) p99_us: Option<Interval>,
    pub(super) origin_requests_per_lookup: Interval,
    pub(super) origin_bytes_per_lookup: Interval,
    /// Bytes from the origin per requested byte.
    pub(super) origin_bytes_per_byte: Interval,
    /// Median over the repeats that warmed up.
    pub(super) warm_after_lookups: Option<f64>,
    pub(super) warm_after_s: Option<f64>,
    pub(super) seconds: Interval,
    /// Mean over the rounds, in each of which the same look-ups were also made without a cache.
    pub(super) saved_usd_per_gb_month: Option<Interval>,
}

/// Computed hit ratios of one cache size.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Computed {
    pub(super) law: Law,
    pub(super) ram: Ram,
    pub(super) unit: String,
    pub(super) entries: u64,
    /// Distinct keys of the traces (mean over the rounds), each of which misses at least once.
    pub(super) distinct: f64,
    pub(super) lru: Interval,
    /// Hit ratio of the server's own cache, over a tier in memory.
    pub(super) tiny_lfu: Interval,
    pub(super) min: Interval,
}

/// Returns all measured figures: by tier, by law, by strategy.
pub(super) fn statements(
    repeats: &BTreeMap<CacheCase, Vec<CachingRepeat>>,
    settings: &Settings,
) -> Vec<CachingStatement> {
    let Settings { strategies, prices, .. } = settings;
    let none = strategies.iter().position(|one| *one == Strategy::None);
    let statement = |(case, own): (&CacheCase, &Vec<CachingRepeat>)| {
        let (tier, law, depth, at) = case;
        let strategy = strategies[*at];
        let baseline = none.and_then(|none| repeats.get(&(tier.clone(), *law, *depth, none)));
        // Over a staged copy, most savings come from the copy, whose disk has another price.
        let ram = strategy.ram().filter(|_| strategy.staged().is_none());
        let saved = ram.zip(baseline).and_then(|(ram, baseline)| {
            let of_round = |(none, one): (&CachingRepeat, &CachingRepeat)| {
                let (requests, bytes) = ((requests(none), requests(one)), (bytes(none), bytes(one)));
                prices.as_ref()?.saved(tier, ram.share, requests, bytes)
            };
            let saved: Option<Vec<f64>> = baseline.iter().zip(own).map(of_round).collect();
            saved.map(|saved| student(&saved))
        });
        let warm: Vec<(u64, f64)> = own.iter().filter_map(|repeat| warm_up(&repeat.figures.marks)).collect();
        let computed = |hits: fn(ComputedHits) -> u64| {
            let share = |repeat: &CachingRepeat| hits(repeat.computed.unwrap_or_default()) as f64 / lookups(repeat);
            own[0].computed.map(|_| mean_share(own.iter().map(share)))
        };
        CachingStatement {
            tier: tier.clone(),
            law: settings.plan.laws[*law],
            depth: *depth,
            strategy,
            name: strategy.to_string(),
            repeats: own.len(),
            lookups: own.iter().map(|repeat| repeat.lookups).sum(),
            left_out: own.iter().map(|repeat| repeat.left_out).sum(),
            hit_ratio: mean_share(own.iter().map(hit_ratio)),
            computed_hit_ratio: computed(|hits| hits.policy),
            best_hit_ratio: computed(|hits| hits.best),
            p50_us: quantile(own, 0.5),
            p99_us: quantile(own, 0.99),
            origin_requests_per_lookup: of(own, requests),
            origin_bytes_per_lookup: of(own, bytes),
            origin_bytes_per_byte: of(own, |repeat| bytes(repeat) / settings.plan.row_bytes.0 as f64),
            warm_after_lookups: percentile(warm.iter().map(|warm| warm.0 as f64).collect(), 0.5),
            warm_after_s: percentile(warm.iter().map(|warm| warm.1).collect(), 0.5),
            seconds: of(own, |repeat| repeat.figures.elapsed_s),
            saved_usd_per_gb_month: saved,
        }
    };
    repeats.iter().map(statement).collect()
}

fn lookups(repeat: &CachingRepeat) -> f64 {
    repeat.lookups.max(1) as f64
}

fn hit_ratio(repeat: &CachingRepeat) -> f64 {
    1.0 - repeat.figures.misses.min(repeat.lookups) as f64 / lookups(repeat)
}

fn requests(repeat: &CachingRepeat) -> f64 {
    repeat.origin_requests as f64 / lookups(repeat)
}

fn bytes(repeat: &CachingRepeat) -> f64 {
    repeat.origin_bytes as f64 / lookups(repeat)
}

fn of(repeats: &[CachingRepeat], value: impl Fn(&CachingRepeat) -> f64) -> Interval {
    mean(repeats.iter().map(value))
}

/// Returns the geometric mean of the repeats' percentiles with its interval, because repeats differ by factors. `None`
/// if all repeats together have too few look-ups for the percentile.
fn quantile(repeats: &[CachingRepeat], quantile: f64) -> Option<Interval> {
    let samples: u64 = repeats.iter().map(|repeat| repeat.lookups).sum();
    let of_one = |repeat: &CachingRepeat| Some(percentile(repeat.figures.latencies_us.clone(), quantile)?.max(1e-3));
    (samples >= samples_needed(quantile)).then(|| geometric_mean(repeats.iter().filter_map(of_one)))
}

/// Findings in sentences.
pub(super) fn findings(
    measured: &[CachingStatement],
    computed: &[Computed],
    prices: Option<&CachingPrices>,
) -> Vec<String> {
    let gaps = computed.chunk_by(|a, b| a.law == b.law && a.ram.unit == b.ram.unit);
    let cases = measured.chunk_by(|a, b| case_label(a) == case_label(b));
    let of_cases = cases.flat_map(|group| case_findings(group, prices));
    gaps.filter_map(largest_gap).chain(of_cases).collect()
}

/// Percent with half of its interval.
pub(super) fn percent(of: &Interval) -> String {
    // Longer half of the interval: the other may be cut at 0 or 1.
    let half = (of.hi - of.value).max(of.value - of.lo) * 100.0;
    match half >= 0.05 {
        // A single repeat.
        _ if of.lo <= 0.0 && of.hi >= 1.0 => format!("{:.1} % ±{NONE}", of.value * 100.0),
        true => format!("{:.1} % ±{half:.1}", of.value * 100.0),
        false => format!("{:.1} %", of.value * 100.0),
    }
}

/// Returns the finding for the size at which the real cache is furthest from the best, for one law and unit; `None` if it is nowhere far.
fn largest_gap(computed: &[Computed]) -> Option<String> {
    let gap = |one: &Computed| one.min.value - one.tiny_lfu.value;
    let worst = computed.iter().max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let (law, unit, size) = (worst.law, &worst.unit, share_text(worst.ram.share));
    let [own, min, lru] = [worst.tiny_lfu, worst.min, worst.lru].map(|of| percent(&of));
    // One point: a smaller gap is no reason to change anything.
    (gap(worst) > 0.01).then(|| {
        format!(
            "{law}, {unit}: the server's policy is furthest from the best possible at {size} of the table: \
            its mean hit ratio is {own}, MIN's {min}, LRU's {lru}"
        )
    })
}

/// Tier, law and depth of a statement, for display.
pub(super) fn case_label(one: &CachingStatement) -> String {
    format!("{}, {}, {} at a time", one.tier, one.law, one.depth)
}

/// Findings of one tier, law and depth.
fn case_findings(group: &[CachingStatement], prices: Option<&CachingPrices>) -> Vec<String> {
    let case = case_label(&group[0]);
    let mut out = Vec::from_iter(prices.and_then(|prices| most_saved(group, prices)));
    let over_read = |one: &&CachingStatement| one.origin_bytes_per_byte.value;
    let caches = group.iter().filter(|one| matches!(one.strategy, Strategy::Ram(_)));
    let max = caches.max_by(|a, b| over_read(a).total_cmp(&over_read(b)));
    out.extend(max.filter(|one| over_read(one) > 1.1).map(|one| {
        let (name, bytes) = (&one.name, spread(&one.origin_bytes_per_byte));
        format!("{case}: {name} reads {bytes} bytes of the origin per requested byte")
    }));
    out.extend(group.iter().filter(|one| one.left_out > 0).map(|one| {
        let (name, count) = (&one.name, one.left_out);
        format!("{case}, {name}: repeats ended after `seconds`; look-ups skipped: {count}")
    }));
    out
}

/// Names the caches in memory that save most, and compares their savings with the price of memory.
fn most_saved(group: &[CachingStatement], prices: &CachingPrices) -> Option<String> {
    let case = case_label(&group[0]);
    let saving = || group.iter().filter_map(|one| Some((one, one.saved_usd_per_gb_month?)));
    let (_, best) = saving().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    if best.hi.is_infinite() {
        let why = "there is only one repeat; raise `repeats`";
        return Some(format!("{case}: savings are not compared: {why}"));
    }
    // Negated, because `lowest` names the lowest.
    let costs = saving().map(|(one, saved)| {
        let name = format!("{} ({})", one.name, dollars_interval(Some(&saved)));
        (name, negated(saved))
    });
    // Per GB and month, like the savings.
    let memory = prices.reads.usd_per_gib_hour.map(|usd| usd * HOURS_PER_MONTH);
    let memory = memory.map_or_else(String::new, |memory| {
        let verdict = match (best.lo > memory, best.hi < memory) {
            (true, _) => "it pays off",
            (_, true) => "savings in requests and bytes alone do not pay for it",
            _ => "no significant difference from the savings; raise `repeats`",
        };
        format!("; a GB of memory costs {}: {verdict}", dollars(memory))
    });
    let names = lowest(costs);
    let finding = format!("{case}: of the caches in memory, most dollars a month per GB are saved by {names}{memory}");
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::strategy::Unit;
    use super::*;
    use tierlab_instrument::prices::ReadPrices;
    use tierlab_storage::wrappers::cache::Policy;

    fn statement(name: &str, saved: Interval) -> CachingStatement {
        let half = Interval::exact(0.5);
        CachingStatement {
            tier: "s3".to_owned(),
            law: Law::Scan {},
            depth: 1,
            strategy: Strategy::None,
            name: name.to_owned(),
            repeats: 3,
            lookups: 100,
            left_out: 0,
            hit_ratio: half,
            computed_hit_ratio: None,
            best_hit_ratio: None,
            p50_us: None,
            p99_us: None,
            origin_requests_per_lookup: half,
            origin_bytes_per_lookup: half,
            origin_bytes_per_byte: half,
            warm_after_lookups: None,
            warm_after_s: None,
            seconds: half,
            saved_usd_per_gb_month: Some(saved),
        }
    }

    #[test]
    fn savings_that_cannot_be_told_apart_are_all_named() {
        let finding = |second: Interval, memory: f64| {
            let prices = CachingPrices {
                lookups_per_s: 1.0,
                table_bytes: 1,
                reads: ReadPrices {
                    usd_per_gib_hour: Some(memory / HOURS_PER_MONTH),
                    ..ReadPrices::default()
                },
            };
            let group = [
                statement("second", second),
                statement("first", Interval::new(10.0, 9.0, 11.0)),
            ];
            findings(&group, &[], Some(&prices)).remove(0)
        };
        let text = finding(Interval::new(5.0, 4.0, 6.0), 2.0);
        assert!(
            text.ends_with("are saved by first ($10.0 [9.00–11.0]); a GB of memory costs $2.00: it pays off"),
            "{text}"
        );
        let text = finding(Interval::new(9.5, 8.5, 10.5), 20.0);
        assert!(
            text.contains("by first ($10.0 [9.00–11.0]) or, without a significant difference, second ($9.50")
                && text.ends_with("alone do not pay for it"),
            "{text}"
        );
        let text = finding(Interval::new(5.0, 4.0, 6.0), 10.5);
        assert!(text.contains("no significant difference from the savings"), "{text}");
        let text = finding(Interval::new(12.0, f64::NEG_INFINITY, f64::INFINITY), 2.0);
        assert!(text.contains("not compared: there is only one repeat"), "{text}");
    }

    #[test]
    fn a_policy_that_hits_as_often_as_the_best_is_no_finding() {
        let finding = |own: f64, min: f64| {
            let [own, min] = [own, min].map(|value| Interval::new(value, value, value));
            largest_gap(&[Computed {
                law: Law::Scan {},
                ram: Ram {
                    share: 0.1,
                    policy: Policy::TinyLfu,
                    unit: Unit::Row,
                },
                unit: "rows".to_owned(),
                entries: 10,
                distinct: 10.0,
                lru: own,
                tiny_lfu: own,
                min,
            }])
        };
        assert_eq!(finding(0.875, 0.876), None);
        let text = finding(0.4, 0.6).unwrap();
        assert!(text.contains("is 40.0 %, MIN's 60.0 %, LRU's 40.0 %"), "{text}");
    }
}
