//! The table that terminal, Markdown and HTML show: a row for each point, under a heading for those that differ in block and
//! depth alone.

use crate::summary::{Summary, Verdict};
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{bytes, digits3, latency, spread};

/// The heads of the columns.
pub(super) const HEADER: [&str; 13] = [
    "block", "depth", "calls/s", "MB/s", "of best", "p50", "p95", "p99", "p99.9", "CPU s/GB", "moved", "fetched",
    "verdict",
];

/// What stands below every table.
pub(super) const NOTE: &str = "calls/s, MB/s: means over the repeats ± half of their 95 % interval. of best: share of the best MB/s \
                               that anything reached on the tier in this run. Latencies: of all repeats; n/a: fewer than 10 calls \
                               lie beyond it. CPU: of the bench's own process, for each GB \
                               read or written. moved: bytes that the tier moved for each byte asked. fetched: bytes that the kernel fetched from \
                               storage for each byte asked.";

/// Points that differ in block and depth alone.
pub(super) struct Family<'a> {
    pub(super) name: String,
    pub(super) points: Vec<&'a Summary>,
}

/// The families, in order.
pub(super) fn families(points: &[Summary]) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for summary in points {
        let name = summary.point.family_text();
        match families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.points.push(summary),
            None => families.push(Family {
                name,
                points: vec![summary],
            }),
        }
    }
    families
}

/// A row.
pub(super) fn row(summary: &Summary) -> [String; 13] {
    let point = &summary.point;
    let time = |interval: &Option<Interval>| interval.map_or_else(|| "n/a".to_owned(), |us| latency(us.value));
    let share = |share: Option<f64>| share.map_or_else(|| "n/a".to_owned(), digits3);
    [
        bytes(point.block_bytes),
        point.depth.to_string(),
        spread(&summary.iops),
        spread(&summary.mb_per_s),
        format!("{:.0} %", summary.share_of_best_mb * 100.0),
        time(&summary.p50_us),
        time(&summary.p95_us),
        time(&summary.p99_us),
        time(&summary.p999_us),
        digits3(summary.cpu_s_per_gb.value),
        share(summary.over_read),
        share(summary.fetched_share),
        verdict(summary),
    ]
}

/// The verdict in a word or two; the reasons stand in the sentences.
pub(super) fn verdict(summary: &Summary) -> String {
    let word = match &summary.verdict {
        Verdict::Valid if !summary.drift.is_empty() => "drifts",
        Verdict::Valid => "valid",
        Verdict::Saturated => "saturated",
        Verdict::Unknown(_) => "unknown",
        Verdict::Failed(_) => "failed",
    };
    word.to_owned()
}
