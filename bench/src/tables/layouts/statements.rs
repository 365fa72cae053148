//! Statements from repeats. In: the laid out table and the figures of each repeat. Out: figures with 95 % intervals
//! over the repeats, and the ratio of each layout to a file per entity, repeat by repeat. Pure.

use super::measure::{AccessCost, LayoutRepeat};
use crate::intervals::{geometric_mean, mean, percentile};
use crate::tables::places::{LaidOut, Place, Stored};
use serde::Serialize;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Interval, samples_needed};
use tierlab_layouts::Layout;

/// Cost of one kind of access.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AccessStatement {
    pub(super) samples_per_s: Interval,
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

impl LayoutStatement {
    /// Kinds of access by name.
    pub(super) fn accesses(&self) -> [(&'static str, &AccessStatement); 3] {
        [("point", &self.point), ("batch", &self.batch), ("scan", &self.scan)]
    }
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
    let each = |of_one: &dyn Fn(&AccessCost) -> f64| own.iter().map(|repeat| of_one(of(repeat))).sum::<f64>() / samples;
    let mut latencies: Vec<f64> = own
        .iter()
        .flat_map(|repeat| of(repeat).latencies_us.iter().copied())
        .collect();
    latencies.sort_by(f64::total_cmp);
    let quantile = |quantile| {
        let is_enough = latencies.len() as u64 >= samples_needed(quantile);
        percentile(&latencies, quantile).filter(|_| is_enough)
    };
    let of_files = files.map(|files| {
        let pairs = own.iter().zip(files);
        geometric_mean(&pairs.map(|(own, files)| rate(own) / rate(files)).collect::<Vec<_>>())
    });
    AccessStatement {
        samples_per_s: mean(&own.iter().map(rate).collect::<Vec<_>>()),
        p50_us: quantile(0.5),
        p95_us: quantile(0.95),
        requests_per_sample: each(&|figures| figures.requests as f64),
        bytes_per_sample: each(&|figures| figures.wire_bytes as f64),
        decode_us_per_sample: each(&|figures| figures.decode_s * 1e6),
        cpu_us_per_sample: each(&|figures| figures.cpu_s * 1e6),
        of_files,
    }
}

/// Returns the findings in sentences: the best layout for each access on each tier, and shards compared with files,
/// with the reason.
pub(super) fn findings(all: &[LayoutStatement], batch_rows: u32) -> Vec<String> {
    let mut tiers: Vec<&str> = all.iter().map(|one| one.place.tier.as_str()).collect();
    tiers.dedup();
    let mut out = Vec::new();
    for tier in tiers {
        let here: Vec<&LayoutStatement> = all.iter().filter(|one| one.place.tier == tier).collect();
        for (at, (word, rows)) in [("one entity", 1), ("a batch", batch_rows), ("a scan", 0)]
            .into_iter()
            .enumerate()
        {
            let rate = |one: &&&LayoutStatement| one.accesses()[at].1.samples_per_s.value;
            let Some(best) = here.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else {
                continue;
            };
            let of = match rows {
                0 | 1 => word.to_owned(),
                rows => format!("{word} of {rows}"),
            };
            let value = best.accesses()[at].1.samples_per_s.value;
            out.push(format!(
                "{tier}: {of} is read fastest from {}, {value:.0} rows a second",
                best.place.layout
            ));
        }
        let files = here.iter().find(|one| one.place.layout == Layout::Files);
        let tar = here.iter().find(|one| one.place.layout == Layout::Tar);
        if let Some((files, tar)) = files.zip(tar)
            && let Some(ratio) = tar.scan.of_files
        {
            out.push(format!(
                "{tier}: a scan of tar shards is {:.1} [{:.1} to {:.1}] times as fast as of a file for each entity: {:.3} requests a row and not \
                 {:.1}, {:.0} bytes and not {:.0}, {:.0} us of CPU and not {:.0}",
                ratio.value,
                ratio.lo,
                ratio.hi,
                tar.scan.requests_per_sample,
                files.scan.requests_per_sample,
                tar.scan.bytes_per_sample,
                files.scan.bytes_per_sample,
                tar.scan.cpu_us_per_sample,
                files.scan.cpu_us_per_sample,
            ));
        }
    }
    out
}
