//! What the GPUs did, as a section of the page. In: rows. Out: HTML.

use super::markup::{number, scroll, soft};
use crate::content::gpus::GpuRow;
use crate::units::{NONE, digits3, percent, rate};
use maud::{Markup, html};
use tierlab_analysis::record::IdleByCause;

const NOTE: &str = "Busy: share of the window in which a kernel ran, by NVML. The rest is idle: while a session ran (copies over the bus, \
                    launches, the host's part), while requests were queued, while they read their features, without requests. Energy \
                    is of the whole machine's GPUs. Reads: by cuFile's own counters.";

/// Names of the columns, and whether they are numbers.
const HEADER: [(&str, bool); 13] = [
    ("tier", false),
    ("cache", false),
    ("mode", false),
    ("rps", true),
    ("busy", true),
    ("copies, host", true),
    ("queue", true),
    ("storage", true),
    ("no requests", true),
    ("J/inference", true),
    ("path", false),
    ("direct reads", true),
    ("POSIX reads", true),
];

/// One row per point: utilisation and idle by cause, energy, the way of the reads.
pub(super) fn section(rows: &[GpuRow<'_>]) -> Markup {
    html! {
        (soft(NOTE))
        (scroll("GPUs by point", &html! {
            table {
                thead { tr { @for (name, is_number) in HEADER { th class=[number(is_number)] { (name) } } } }
                tbody { @for row in rows { tr { (cells(row)) } } }
            }
        }))
    }
}

fn cells(row: &GpuRow<'_>) -> Markup {
    let known = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let share = |of: fn(&IdleByCause) -> f64| known(row.time.map(|time| percent(of(time))));
    let reads = row.reads.as_ref();
    html! {
        td { (row.tier) }
        td { (row.cache) }
        td { (row.mode) }
        td.n { (row.offered) }
        td.n { (share(|time| time.busy)) }
        td.n { (share(|time| time.copy_and_host)) }
        td.n { (share(|time| time.queue_wait)) }
        td.n { (share(|time| time.storage_wait)) }
        td.n { (share(|time| time.no_requests)) }
        td.n { (known(row.joules_per_inference.map(digits3))) }
        td { (reads.map_or(NONE, |reads| reads.path)) }
        td.n { (known(reads.map(|reads| rate(reads.direct)))) }
        td.n { (known(reads.map(|reads| rate(reads.posix)))) }
    }
}
