//! Statements from repeats, and their report. In: the laid out table and the figures of each repeat. Out: figures with 95 % intervals
//! over the repeats, and the ratio of each layout to a file per entity, repeat by repeat; tables and findings. Pure.

use super::plan::LayoutsPlan;
use super::{AccessCost, LayoutRepeat};
use crate::report::{Bars, Column, Page, Part, RunFacts, levels, or_none, table};
use crate::rounds::{geometric_mean, lowest, mean, negated, percentile};
use crate::tables::placements::{LaidOut, Placement, Stored};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Interval, samples_needed};
use tierlab_instrument::units::{amount, bytes, digits3, latency, latency_interval, spread, thousands};
use tierlab_layouts::Layout;

/// Cost of one kind of access.
#[derive(Debug, Clone, Serialize)]
struct AccessStatement {
    samples_per_s: Interval,
    /// Median latency of a repeat's calls, as a mean over the repeats.
    call_us: Interval,
    /// Latency of a call; `None` with too few calls.
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    requests_per_sample: f64,
    /// Bytes moved by the tier.
    bytes_per_sample: f64,
    decode_us_per_sample: f64,
    /// CPU time of the bench's process.
    cpu_us_per_sample: f64,
    /// Ratio of samples per second to those of a file per entity, in the same repeat.
    of_files: Option<Interval>,
}

/// Figures of one layout on one tier.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LayoutStatement {
    #[serde(flatten)]
    placement: Placement,
    #[serde(flatten)]
    stored: Stored,
    repeats: usize,
    point: AccessStatement,
    batch: AccessStatement,
    scan: AccessStatement,
}

type AccessOf = fn(&LayoutRepeat) -> &AccessCost;

/// Returns every measured layout, by tier and in the order of the list.
pub(super) fn statements(
    laid_out: &BTreeMap<Placement, LaidOut>,
    repeats: &BTreeMap<Placement, Vec<LayoutRepeat>>,
) -> Vec<LayoutStatement> {
    let statement = |(placement, table): (&Placement, &LaidOut)| {
        let own = repeats.get(placement)?;
        let files = Placement {
            layout: Layout::Files,
            ..placement.clone()
        };
        let files = repeats.get(&files).filter(|_| placement.layout != Layout::Files);
        let of = |of: AccessOf| access(own, files.map(Vec::as_slice), of);
        Some(LayoutStatement {
            placement: placement.clone(),
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

/// Names the fastest layouts. A single repeat has no intervals.
fn fastest(
    group: &[LayoutStatement],
    access: &str,
    of: impl Fn(&LayoutStatement) -> Interval,
    text: impl Fn(Interval) -> String,
) -> String {
    let tier = &group[0].placement.tier;
    if group.iter().any(|one| one.repeats < 2) {
        return format!("{tier}: layouts are not compared for {access}: there is only one repeat; raise `repeats`");
    }
    let each = group.iter().map(|one| {
        let (layout, interval) = (one.placement.layout, of(one));
        (format!("{layout} ({})", text(interval)), interval)
    });
    format!("{tier}: {access} is read fastest from {}", lowest(each))
}

/// Returns the findings in sentences: the fastest layouts for each access on each tier.
fn findings(all: &[LayoutStatement], batch_rows: u32) -> Vec<String> {
    let batch = format!("a batch of {batch_rows}");
    let call = |us| format!("{} a call", latency_interval(Some(&us)));
    let rate = |per_s| format!("{} rows a second", spread(&negated(per_s)));
    let tiers = all.chunk_by(|a, b| a.placement.tier == b.placement.tier);
    let of_tier = |group: &[LayoutStatement]| {
        [
            fastest(group, "one entity", |one| one.point.call_us, call),
            fastest(group, &batch, |one| one.batch.call_us, call),
            fastest(group, "a scan", |one| negated(one.scan.samples_per_s), rate),
        ]
    };
    tiers.flat_map(of_tier).collect()
}

const COLUMNS: [Column<LayoutStatement>; 15] = [
    ("tier", |one| one.placement.tier.clone()),
    ("layout", |one| one.placement.layout.to_string()),
    ("stored", |one| bytes(one.stored.stored_bytes)),
    ("objects", |one| thousands(one.stored.objects)),
    ("open", |one| latency(one.stored.open_ms * 1e3)),
    ("one p50", |one| or_none(one.point.p50_us, latency)),
    ("one p95", |one| or_none(one.point.p95_us, latency)),
    ("requests", |one| digits3(one.point.requests_per_sample)),
    ("batch p50", |one| or_none(one.batch.p50_us, latency)),
    ("requests/row", |one| digits3(one.batch.requests_per_sample)),
    ("scan rows/s", |one| spread(&one.scan.samples_per_s)),
    ("of files", |one| {
        one.scan.of_files.as_ref().map_or_else(String::new, spread)
    }),
    ("bytes/row", |one| digits3(one.scan.bytes_per_sample)),
    ("decode/row", |one| latency(one.scan.decode_us_per_sample)),
    ("CPU/row", |one| latency(one.scan.cpu_us_per_sample)),
];
const NOTE: &str = "stored: all objects, including indexes. open: time to read every index or footer into memory. one: \
calls for a single entity, one after another, and their requests; batch: the same, with one call per batch. scan: rows \
in order, with the 95 % interval over the repeats, and the costs per row: bytes moved by the tier, time from these bytes to a \
checked row, and CPU of the whole process. of files: ratio of rows per second to a file per entity in the same repeat, \
with its 95 % interval. n/a: too few calls.";

/// A table of all layouts, on each tier the fastest for a scan first.
pub(super) fn page<'a>(run: &'a RunFacts, plan: &LayoutsPlan, row_bytes: u64, layouts: &[LayoutStatement]) -> Page<'a> {
    let tiers = layouts.chunk_by(|a, b| a.placement.tier == b.placement.tier);
    let bars: Vec<Bars> = tiers.flat_map(bars).collect();
    let mut ranked = layouts.to_vec();
    ranked.sort_by(|a, b| b.scan.samples_per_s.value.total_cmp(&a.scan.samples_per_s.value));
    ranked.sort_by_key(|one| one.placement.tier.clone());
    let all = table("", &COLUMNS, 2, &ranked);
    let is_first = |name: &str| matches!(name, "tier" | "layout" | "one p50" | "batch p50" | "scan rows/s");
    Page {
        run,
        facts: vec![format!(
            "rows: {}, of {row_bytes} bytes; rounds: {}; rows of a batch: {}; pieces of a scan at a time: {}",
            plan.rows, run.repeats, plan.batch_rows, plan.scan_depth
        )],
        badges: Vec::new(),
        findings: findings(layouts, plan.batch_rows),
        overview: all.named(is_first),
        chart: levels(&bars),
        parts: vec![Part::Tables("Every layout", vec![all], NOTE)],
    }
}

/// Charts of a tier.
fn bars(group: &[LayoutStatement]) -> [Bars; 3] {
    let bars = |title: &str, value: fn(&LayoutStatement) -> Option<f64>, text| Bars {
        title: format!("{}: {title}", group[0].placement.tier),
        bars: group
            .iter()
            .map(|one| (one.placement.layout.to_string(), value(one)))
            .collect(),
        text,
    };
    [
        bars("one entity, p50 (less is better)", |one| one.point.p50_us, latency),
        bars("a batch, p50 (less is better)", |one| one.batch.p50_us, latency),
        bars(
            "a scan, rows a second (more is better)",
            |one| Some(one.scan.samples_per_s.value),
            amount,
        ),
    ]
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
            placement: Placement {
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
        let text = fastest_of([(tar, 306.0, 4.0), (rows, 200.0, 4.0), (arrow, 125.0, 4.0)], 3);
        assert_eq!(
            text,
            "disk: one entity is read fastest from arrow-lz4 (125 µs [121–129] a call)"
        );
        let text = fastest_of([(tar, 130.0, 9.0), (rows, 200.0, 4.0), (arrow, 125.0, 4.0)], 3);
        assert!(
            text.ends_with(
                "arrow-lz4 (125 µs [121–129] a call) or, without a significant difference, \
                 tar (130 µs [121–139] a call)"
            ),
            "{text}"
        );
        let text = fastest_of([(tar, 306.0, 0.0), (rows, 200.0, 0.0), (arrow, 125.0, 0.0)], 1);
        assert!(
            text.contains("not compared for one entity: there is only one repeat"),
            "{text}"
        );
    }
}
