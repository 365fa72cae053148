//! Tables of everything except latencies over a rate. In: a run. Out: its tables, each with sentences.

mod by_point;
mod cold_starts;
mod driven;
mod fleet;

pub(crate) use cold_starts::{stage_s, stages};

use super::table::{Cell, Table, figures, text};
use crate::units::{digits3, percent, rate};
use tierlab_analysis::record::{DeviceReads, IdleByCause, Point, Run};

/// Tables of a run.
pub(crate) fn side_tables(run: &Run) -> Vec<Table> {
    let tables = [
        by_point::streams(run),
        by_point::ramps(run),
        by_point::slowest(run),
        cold_starts::table(run),
        driven::closed_loops(run),
        driven::journeys(run),
        fleet::table(run),
    ];
    tables.into_iter().flatten().collect()
}

const INTRO: &str = "Busy: share of the step with a running kernel (NVML). The rest is idle: a session ran (copies over the bus, launches, \
                     host work), requests were queued, requests read their features, or there were no requests. Energy is that of all GPUs \
                     of the machine. Reads: by cuFile's own counters";

/// Returns utilisation and idle time by cause, energy, and the path of the reads, point by point.
pub(crate) fn gpus(run: &Run) -> Option<Table> {
    let shares = ["rps", "busy", "copies, host", "queue", "storage", "no requests"].map(figures);
    let columns = ["tier", "cache", "mode"].map(text).into_iter().chain(shares);
    let columns = columns.chain([figures("J/inference"), text("path")]);
    let columns = columns.chain(["direct reads", "POSIX reads"].map(figures));
    Table::section("GPUs by point", INTRO, columns, run.points.iter().filter_map(row))
}

fn row(point: &Point) -> Option<Vec<Cell>> {
    let (factors, summary) = (&point.factors, point.summary.as_ref()?);
    let servers = point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let reads: Vec<&DeviceReads> = servers.filter_map(|server| server.device_reads.as_ref()).collect();
    if summary.gpu_time.is_none() && reads.is_empty() {
        return None;
    }
    let share = |of: fn(&IdleByCause) -> f64| Cell::of(summary.gpu_time.as_ref().map(|time| percent(of(time))));
    let first = reads.first();
    let sum = |of: fn(&DeviceReads) -> f64| Cell::of(first.map(|_| rate(reads.iter().map(|reads| of(reads)).sum())));
    Some(vec![
        Cell::plain(factors.label()),
        Cell::plain(&factors.cache),
        Cell::plain(&factors.mode.to_string()),
        Cell::plain(&rate(factors.offered_rps)),
        share(|time| time.busy),
        share(|time| time.copy_and_host),
        share(|time| time.queue_wait),
        share(|time| time.storage_wait),
        share(|time| time.no_requests),
        Cell::of(summary.joules_per_inference.map(digits3)),
        Cell::of(first.map(|first| first.path.clone())),
        sum(|reads| reads.peer_to_peer + reads.nvidia_fs),
        sum(|reads| reads.posix),
    ])
}
