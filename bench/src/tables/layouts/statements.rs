//! Statements from repeats. In: the laid out table and the figures of each repeat. Out: figures with 95 % intervals
//! over the repeats, and the ratio of each layout to a file per entity, repeat by repeat. Pure.

use super::measure::{AccessCost, LayoutRepeat};
use crate::intervals::{geometric_mean, mean, percentile};
use crate::tables::places::{LaidOut, Place, Stored};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Interval, samples_needed};
use tierlab_instrument::units::latency;
use tierlab_layouts::Layout;

/// Cost of one kind of access.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AccessStatement {
    pub(super) samples_per_s: Interval,
    /// Median latency of a repeat's calls, as a mean over the repeats.
    pub(super) call_us: Interval,
    /// Latency of a call; `None` with too few calls.
    pub(super) p50_us: Option<f64>,
    pub(super) p95_us: Option<f64>,
    pub(super) requests_per_sample: f64,
    /// Bytes moved by the tier.
    pub(super) bytes_per_sample: f64,
    pub(super) decode_us_per_sample: f64,
    /// CPU time of the bench's process.
    pub(super) cpu_us_per_sample: f64,
    /// Ratio of samples per second to those of a file per entity, in the same repeat.
    pub(super) of_files: Option<Interval>,
}

/// Figures of one layout on one tier.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LayoutStatement {
    #[serde(flatten)]
    pub(super) place: Place,
    #[serde(flatten)]
    pub(super) stored: Stored,
    pub(super) repeats: usize,
    pub(super) point: AccessStatement,
    pub(super) batch: AccessStatement,
    pub(super) scan: AccessStatement,
}

type AccessOf = fn(&LayoutRepeat) -> &AccessCost;

/// Returns every measured layout, by tier and in the order of the list.
pub(super) fn statements(
    laid_out: &BTreeMap<Place, LaidOut>,
    repeats: &BTreeMap<Place, Vec<LayoutRepeat>>,
) -> Vec<LayoutStatement> {
    let statement = |(place, table): (&Place, &LaidOut)| {
        let own = repeats.get(place)?;
        let files = Place {
            layout: Layout::Files,
            ..place.clone()
        };
        let files = repeats.get(&files).filter(|_| place.layout != Layout::Files);
        let of = |of: AccessOf| access(own, files.map(Vec::as_slice), of);
        Some(LayoutStatement {
            place: place.clone(),
            stored: table.stored,
            repeats: own.len(),
            point: of(|repeat| &repeat.point),
            batch: of(|repeat| &repeat.batch),
            scan: of(|repeat| &repeat.scan),
        })
    };
    laid_out.iter().filter_map(statement).collect()
}

fn access(own: &[LayoutRepeat], files: Option<&[LayoutRepeat]>, of: AccessOf) -> AccessStatement {
    let rate = |repeat: &LayoutRepeat| of(repeat).samples as f64 / of(repeat).elapsed_s.max(1e-9);
    let samples = own.iter().map(|repeat| of(repeat).samples).sum::<u64>().max(1) as f64;
    let each = |of_one: fn(&AccessCost) -> f64| own.iter().map(|repeat| of_one(of(repeat))).sum::<f64>() / samples;
    let medians = own
        .iter()
        .map(|repeat| percentile(of(repeat).latencies_us.clone(), 0.5).unwrap_or_default());
    let latencies: Vec<f64> = own.iter().flat_map(|repeat| of(repeat).latencies_us.clone()).collect();
    let quantile = |quantile| {
        let is_enough = latencies.len() as u64 >= samples_needed(quantile);
        percentile(latencies.clone(), quantile).filter(|_| is_enough)
    };
    let ratio = |(own, files): (&LayoutRepeat, &LayoutRepeat)| rate(own) / rate(files);
    AccessStatement {
        call_us: mean(medians),
        samples_per_s: mean(own.iter().map(rate)),
        p50_us: quantile(0.5),
        p95_us: quantile(0.95),
        requests_per_sample: each(|figures| figures.requests as f64),
        bytes_per_sample: each(|figures| figures.wire_bytes as f64),
        decode_us_per_sample: each(|figures| figures.decode_s * 1e6),
        cpu_us_per_sample: each(|figures| figures.cpu_s * 1e6),
        of_files: files.map(|files| geometric_mean(own.iter().zip(files).map(ratio))),
    }
}

/// Converts rates to times, so that less is better.
fn reciprocal(rate: &Interval) -> Interval {
    let of = |rate: f64| 1.0 / rate.max(f64::MIN_POSITIVE);
    Interval {
        value: of(rate.value),
        lo: of(rate.hi),
        hi: of(rate.lo),
    }
}

/// Names the fastest layouts: the best one, and all whose intervals overlap the best's. A single repeat has no intervals.
fn fastest(
    here: &[LayoutStatement],
    access: &str,
    of: impl Fn(&LayoutStatement) -> Interval,
    text: impl Fn(f64) -> String,
) -> String {
    let tier = &here[0].place.tier;
    if here.iter().any(|one| one.repeats < 2) {
        return format!("{tier}: layouts are not compared for {access}: there is only one repeat; raise `repeats`");
    }
    let mut order: Vec<(Layout, Interval)> = here.iter().map(|one| (one.place.layout, of(one))).collect();
    order.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let least = order.first().map_or(f64::INFINITY, |(_, interval)| interval.hi);
    order.retain(|(_, interval)| interval.lo <= least);
    let each = order
        .iter()
        .map(|(layout, interval)| format!("{layout} ({})", text(interval.value)));
    let names = each.collect::<Vec<_>>().join(", ");
    match order.len() {
        1 => format!("{tier}: {access} is read fastest from {names}"),
        _ => format!("{tier}: {access} is read fastest from one of these, without a significant difference: {names}"),
    }
}

/// Returns the findings in sentences: the fastest layouts for each access on each tier.
pub(super) fn findings(all: &[LayoutStatement], batch_rows: u32) -> Vec<String> {
    let batch = format!("a batch of {batch_rows}");
    let call = |us| format!("{} a call", latency(us));
    let rate = |s| format!("{:.0} rows a second", 1.0 / s);
    let tiers = all.chunk_by(|a, b| a.place.tier == b.place.tier);
    let of_tier = |here: &[LayoutStatement]| {
        [
            fastest(here, "one entity", |one| one.point.call_us, call),
            fastest(here, &batch, |one| one.batch.call_us, call),
            fastest(here, "a scan", |one| reciprocal(&one.scan.samples_per_s), rate),
        ]
    };
    tiers.flat_map(of_tier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fastest_of(calls: [(Layout, f64, f64); 3], repeats: usize) -> String {
        let of = |value: f64, apart: f64| Interval {
            value,
            lo: value - apart,
            hi: value + apart,
        };
        let access = |call_us: Interval| AccessStatement {
            // In another order than the latencies: few slow calls decide a mean.
            samples_per_s: call_us,
            call_us,
            p50_us: Some(call_us.value),
            p95_us: None,
            requests_per_sample: 1.0,
            bytes_per_sample: 1.0,
            decode_us_per_sample: 1.0,
            cpu_us_per_sample: 1.0,
            of_files: None,
        };
        let all = calls.map(|(layout, value, apart)| LayoutStatement {
            place: Place {
                tier: "disk".to_owned(),
                layout,
                table: String::new(),
            },
            stored: Stored::default(),
            repeats,
            point: access(of(value, apart)),
            batch: access(of(value, apart)),
            scan: access(of(value, apart)),
        });
        findings(&all, 32).remove(0)
    }

    #[test]
    fn the_fastest_is_named_by_the_latency_that_the_table_shows() {
        let (tar, rows) = ("tar".parse().unwrap(), "rows".parse().unwrap());
        let arrow = "arrow-lz4".parse().unwrap();
        let said = fastest_of([(tar, 306.0, 4.0), (rows, 200.0, 4.0), (arrow, 125.0, 4.0)], 3);
        assert_eq!(said, "disk: one entity is read fastest from arrow-lz4 (125 µs a call)");
        let said = fastest_of([(tar, 130.0, 9.0), (rows, 200.0, 4.0), (arrow, 125.0, 4.0)], 3);
        assert!(
            said.contains("without a significant difference: arrow-lz4 (125 µs a call), tar (130 µs a call)"),
            "{said}"
        );
        let said = fastest_of([(tar, 306.0, 0.0), (rows, 200.0, 0.0), (arrow, 125.0, 0.0)], 1);
        assert!(
            said.contains("not compared for one entity: there is only one repeat"),
            "{said}"
        );
    }
}
