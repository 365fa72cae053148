//! `points.csv`: a row for each point, empty where something is not known.

use crate::peers::Tool;
use crate::plan::word;
use crate::summary::Summary;
use anyhow::{Context, Result};
use tierlab_analysis::record::Interval;

/// The table.
pub(super) fn csv(points: &[Summary]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (number, summary) in points.iter().enumerate() {
        let cells = cells(summary);
        if number == 0 {
            writer.write_record(cells.iter().map(|(name, _)| name))?;
        }
        writer.write_record(cells.iter().map(|(_, value)| value))?;
    }
    let bytes = writer.into_inner().context("the table cannot be written")?;
    Ok(String::from_utf8(bytes)?)
}

fn cells(summary: &Summary) -> Vec<(String, String)> {
    let point = &summary.point;
    let mut cells: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| cells.push((name.to_owned(), value));
    let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    put("tier", point.tier.clone());
    put("way", word(&point.way));
    put("pattern", word(&point.pattern));
    put("operation", word(&point.operation));
    put("cache", word(&point.cache));
    put("block_bytes", point.block_bytes.to_string());
    put("depth", point.depth.to_string());
    put("threads", point.threads.to_string());
    put("files", point.files.to_string());
    put("offered_per_s", point.rate.to_string());
    put("verdict", super::rows::verdict(summary));
    put("repeats", summary.repeats.to_string());
    put("calls", summary.calls.to_string());
    let mut interval = |name: &str, interval: Option<Interval>| {
        put(name, some(interval.map(|i| i.value)));
        put(&format!("{name}_lo"), some(interval.map(|i| i.lo)));
        put(&format!("{name}_hi"), some(interval.map(|i| i.hi)));
    };
    interval("calls_per_s", Some(summary.iops));
    interval("mb_per_s", Some(summary.mb_per_s));
    interval("p50_us", summary.p50_us);
    interval("p95_us", summary.p95_us);
    interval("p99_us", summary.p99_us);
    interval("p999_us", summary.p999_us);
    interval("cpu_s_per_gb", Some(summary.cpu_s_per_gb));
    let fio = summary.peers.iter().find(|peer| peer.tool == Tool::Fio);
    interval("ratio_to_fio", fio.map(|peer| peer.ratio));
    put("fio_calls_per_s", some(fio.map(|peer| peer.iops.value)));
    put("fio_p50_us", some(fio.and_then(|peer| peer.p50_us)));
    put("moved_share", some(summary.over_read));
    put("fetched_share", some(summary.fetched_share));
    put("requests_per_call", some(summary.requests_per_call));
    put("retries", summary.retries.to_string());
    put("unfinished", summary.unfinished.to_string());
    put("late_p99_us", some(summary.late_p99_us));
    put("share_of_best_mb", summary.share_of_best_mb.to_string());
    put("share_of_best_calls", summary.share_of_best_iops.to_string());
    let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    put("disk_reads", count(summary.disk.map(|disk| disk.reads)));
    put("disk_read_bytes", count(summary.disk.map(|disk| disk.read_bytes)));
    put("disk_write_bytes", count(summary.disk.map(|disk| disk.write_bytes)));
    put("nfs_reads", count(summary.nfs.map(|nfs| nfs.reads)));
    put("nfs_read_bytes", count(summary.nfs.map(|nfs| nfs.read_bytes)));
    put("via", summary.via.iter().cloned().collect::<Vec<_>>().join(" "));
    cells
}
