//! `points.csv`: a row for each point.

use crate::peers::Tool;
use crate::plan::word;
use crate::report::CsvRow;
use crate::runner::summary::Summary;

pub(super) fn row(summary: &Summary) -> CsvRow {
    let point = &summary.point;
    let mut row = CsvRow::default();
    row.put("tier", &point.tier);
    row.put("way", &word(&point.way));
    row.put("pattern", &word(&point.pattern));
    row.put("operation", &word(&point.operation));
    row.put("cache", &word(&point.cache));
    row.put("block_bytes", point.block_bytes);
    row.put("depth", point.depth);
    row.put("threads", point.threads);
    row.put("files", point.files);
    row.put("offered_per_s", point.rate);
    row.put("verdict", summary.verdict_word());
    row.put("repeats", summary.repeats);
    row.put("calls", summary.calls);
    row.interval("calls_per_s", summary.iops);
    row.interval("mb_per_s", summary.mb_per_s);
    row.interval("p50_us", summary.p50_us);
    row.interval("p95_us", summary.p95_us);
    row.interval("p99_us", summary.p99_us);
    row.interval("p999_us", summary.p999_us);
    row.interval("cpu_s_per_gb", summary.cpu_s_per_gb);
    let fio = summary.peers.iter().find(|peer| peer.tool == Tool::Fio);
    row.interval("ratio_to_fio", fio.map(|peer| peer.ratio));
    row.some("fio_calls_per_s", fio.map(|peer| peer.iops.value));
    row.some("fio_p50_us", fio.and_then(|peer| peer.p50_us));
    row.some("moved_share", summary.over_read);
    row.some("fetched_share", summary.fetched_share);
    row.some("requests_per_call", summary.requests_per_call);
    row.put("retries", summary.retries);
    row.put("unfinished", summary.unfinished);
    row.some("late_p99_us", summary.late_p99_us);
    row.put("share_of_best_mb", summary.share_of_best_mb);
    row.put("share_of_best_calls", summary.share_of_best_iops);
    row.some("disk_reads", summary.disk.map(|disk| disk.reads));
    row.some("disk_read_bytes", summary.disk.map(|disk| disk.read_bytes));
    row.some("disk_write_bytes", summary.disk.map(|disk| disk.write_bytes));
    row.some("nfs_reads", summary.nfs.map(|nfs| nfs.reads));
    row.some("nfs_read_bytes", summary.nfs.map(|nfs| nfs.read_bytes));
    row.put("via", &summary.via.iter().cloned().collect::<Vec<_>>().join(" "));
    row
}
