//! What the GPUs did, as a section of the page. In: rows. Out: HTML.

use super::markup::escape;
use crate::content::gpus::GpuRow;
use crate::units::{NONE, digits3, percent, rate};
use tierlab_analysis::record::IdleByCause;

/// One row per point: utilisation and idle by cause, energy, the way of the reads.
pub(super) fn section(rows: &[GpuRow<'_>]) -> String {
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
        out += &cells(row);
    }
    out + "</tbody></table></div>"
}

fn cells(row: &GpuRow<'_>) -> String {
    let number = |text: Option<String>| format!("<td class=\"n\">{}</td>", text.unwrap_or_else(|| NONE.to_owned()));
    let share = |of: fn(&IdleByCause) -> f64| number(row.time.map(|time| percent(of(time))));
    let reads = row.reads.as_ref();
    let mut out = format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td>",
        escape(row.tier),
        escape(row.cache),
        row.mode,
        row.offered
    );
    out += &share(|time| time.busy);
    out += &share(|time| time.copy_and_host);
    out += &share(|time| time.queue_wait);
    out += &share(|time| time.storage_wait);
    out += &share(|time| time.no_requests);
    out += &number(row.joules_per_inference.map(digits3));
    out += &format!("<td>{}</td>", escape(reads.map_or(NONE, |reads| reads.path)));
    out += &number(reads.map(|reads| rate(reads.direct)));
    out += &number(reads.map(|reads| rate(reads.posix)));
    out + "</tr>"
}
