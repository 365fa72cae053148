//! A run of points as `run.json` keeps it, and its tables: points that differ in block and depth alone are rows of one.

use crate::report::{Block, Ran, Row};
use crate::runner::summary::{Summary, Verdict};
use serde::Serialize;
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{NONE, bytes, digits3, latency, spread};

const HEADER: [&str; 13] = [
    "block", "depth", "calls/s", "MB/s", "of best", "p50", "p95", "p99", "p99.9", "CPU s/GB", "moved", "fetched",
    "verdict",
];
pub(super) const NOTE: &str = "calls/s, MB/s: means over the repeats ± half of their 95 % interval. of best: share of the best MB/s that any point \
                    reached on the tier in this run. Latencies: of all repeats; n/a: fewer than 10 calls lie beyond it. CPU: of the \
                    bench's own process, for each GB read or written. moved: bytes that the tier moved for each byte asked. fetched: \
                    bytes that the kernel fetched from storage for each byte asked.";

/// A run as `run.json` keeps it.
#[derive(Debug, Serialize)]
pub(crate) struct Kept {
    #[serde(flatten)]
    pub(crate) ran: Ran,
    /// Tools that are missing, and how to get them.
    pub(crate) peer_notes: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) size_bytes: u64,
    pub(crate) window_s: f64,
    pub(crate) warmup_s: f64,
    pub(crate) points: Vec<Summary>,
}

/// Points that differ in block and depth alone.
pub(super) struct Family<'a> {
    pub(super) name: String,
    pub(super) points: Vec<&'a Summary>,
}

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

pub(super) fn block(family: &Family<'_>) -> Block {
    Block {
        title: family.name.clone(),
        bars: Vec::new(),
        header: HEADER.to_vec(),
        words: 0,
        rows: family.points.iter().map(|summary| row(summary)).collect(),
    }
}

fn row(summary: &Summary) -> Row {
    let point = &summary.point;
    let time = |interval: &Option<Interval>| interval.map_or_else(|| NONE.to_owned(), |us| latency(us.value));
    let share = |share: Option<f64>| share.map_or_else(|| NONE.to_owned(), digits3);
    Row {
        cells: vec![
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
            summary.verdict_word().to_owned(),
        ],
        is_off: summary.verdict != Verdict::Valid,
    }
}
