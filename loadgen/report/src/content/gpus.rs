//! What the GPUs did at each point. In: a run. Out: rows; none where no server saw a GPU and no tier read into device memory.

use crate::units::rate;
use tierlab_analysis::record::{DeviceReads, IdleByCause, Mode, Point, Run};

/// A point's GPUs in a row.
pub(crate) struct GpuRow<'a> {
    /// Its tier.
    pub(crate) tier: &'a str,
    /// Its cache state.
    pub(crate) cache: &'a str,
    /// Real-time or batch.
    pub(crate) mode: Mode,
    /// Requests offered per second.
    pub(crate) offered: String,
    /// Where the time of the GPUs went.
    pub(crate) time: Option<&'a IdleByCause>,
    /// Energy of one inference.
    pub(crate) joules_per_inference: Option<f64>,
    /// Reads into device memory, of all repeats.
    pub(crate) reads: Option<Reads<'a>>,
}

/// Reads into device memory.
pub(crate) struct Reads<'a> {
    /// The way that was asked for.
    pub(crate) path: &'a str,
    /// From the disk to the device.
    pub(crate) direct: f64,
    /// Through the host's memory.
    pub(crate) posix: f64,
}

/// A row for every point with something to say.
pub(crate) fn rows(run: &Run) -> Vec<GpuRow<'_>> {
    run.points.iter().filter_map(row).collect()
}

fn row(point: &Point) -> Option<GpuRow<'_>> {
    let summary = point.summary.as_ref()?;
    let servers = point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let reads: Vec<&DeviceReads> = servers.filter_map(|server| server.device_reads.as_ref()).collect();
    if summary.gpu_time.is_none() && reads.is_empty() {
        return None;
    }
    let sum = |of: fn(&DeviceReads) -> f64| reads.iter().map(|reads| of(reads)).sum();
    Some(GpuRow {
        tier: point.factors.label(),
        cache: &point.factors.cache,
        mode: point.factors.mode,
        offered: rate(point.factors.offered_rps),
        time: summary.gpu_time.as_ref(),
        joules_per_inference: summary.joules_per_inference,
        reads: reads.first().map(|first| Reads {
            path: &first.path,
            direct: sum(|reads| reads.peer_to_peer + reads.nvidia_fs),
            posix: sum(|reads| reads.posix),
        }),
    })
}
