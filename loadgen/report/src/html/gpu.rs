//! What the GPUs did, as a section of the page. In: a run. Out: HTML, empty where no server saw a GPU and no tier read into
//! device memory. Must not compute statistics of its own.

use super::markup::escape;
use crate::units::{NONE, digits3, percent, rate};
use std::fmt::Write as _;
use tierlab_analysis::record::{Point, Run};

/// One row per point: utilisation and idle by cause, energy, the way of the reads.
pub(super) fn section(run: &Run) -> String {
    let rows: Vec<String> = run.points.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<p class=\"soft\">Busy: share of the window in which a kernel ran, by NVML. The rest is idle: while a session ran \
         (copies over the bus, launches, the host's part), while requests were queued, while they read their features, without \
         requests. Energy is of the whole machine's GPUs. Reads: by cuFile's own counters.</p><div class=\"scroll\"><table><thead><tr>\
         <th>tier</th><th>cache</th><th>mode</th><th class=\"n\">rps</th><th class=\"n\">busy</th>\
         <th class=\"n\">copies, host</th><th class=\"n\">queue</th><th class=\"n\">storage</th><th class=\"n\">no requests</th>\
         <th class=\"n\">J/inference</th><th>path</th><th class=\"n\">direct reads</th><th class=\"n\">POSIX reads</th></tr>\
         </thead><tbody>",
    );
    for row in rows {
        out += &row;
    }
    out + "</tbody></table></div>"
}

fn row(point: &Point) -> Option<String> {
    let summary = point.summary.as_ref()?;
    let servers = || point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let reads: Vec<_> = servers().filter_map(|server| server.device_reads.as_ref()).collect();
    if summary.gpu_time.is_none() && reads.is_empty() {
        return None;
    }
    let number = |text: Option<String>| format!("<td class=\"n\">{}</td>", text.unwrap_or_else(|| NONE.to_owned()));
    let share = |of: fn(&tierlab_analysis::record::IdleByCause) -> f64| {
        number(summary.gpu_time.as_ref().map(|time| percent(of(time))))
    };
    let sum = |of: fn(&tierlab_analysis::record::DeviceReads) -> f64| {
        number((!reads.is_empty()).then(|| rate(reads.iter().map(|reads| of(reads)).sum())))
    };
    let factors = &point.factors;
    let mut out = format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
        escape(&factors.tier),
        escape(&factors.cache),
        factors.mode,
        rate(factors.offered_rps)
    );
    out += &share(|time| time.busy);
    out += &share(|time| time.copy_and_host);
    out += &share(|time| time.queue_wait);
    out += &share(|time| time.storage_wait);
    out += &share(|time| time.no_requests);
    out += &number(summary.joules_per_inference.map(digits3));
    let path = reads.first().map_or(NONE, |reads| reads.path.as_str());
    let _ = write!(out, "<td>{}</td>", escape(path));
    out += &sum(|reads| reads.peer_to_peer + reads.nvidia_fs);
    out += &sum(|reads| reads.posix);
    Some(out + "</tr>")
}
