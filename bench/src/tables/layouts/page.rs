//! The report of a comparison of layouts.

use super::plan::LayoutsPlan;
use super::statements::{LayoutStatement, findings};
use crate::report::{Bars, Block, Page, Part, Ran};
use tierlab_analysis::record::Interval;
use tierlab_instrument::units::{bytes, digits3, latency, spread};
use tierlab_report::parts::Table;

const HEADER: [&str; 14] = [
    "layout",
    "stored",
    "objects",
    "open",
    "one p50",
    "one p95",
    "requests",
    "batch p50",
    "requests/row",
    "scan rows/s",
    "of files",
    "bytes/row",
    "decode/row",
    "CPU/row",
];
const NOTE: &str = "stored: all objects, indexes among them. open: until every index or footer was read, which lies in memory from then on. one: \
                    a single entity, in a call of its own, one after another, and its requests; batch: likewise, a call for all of its entities. scan: rows \
                    in order, ± half of the 95 % interval over the repeats, with what each row takes: bytes that the tier moved, time from these bytes to a \
                    checked row, and CPU of the whole process. of files: rows a second over those of a file for each entity in the same repeat. n/a: too few \
                    calls.";

fn row(one: &LayoutStatement) -> Vec<String> {
    let time = |us: Option<f64>| us.map_or_else(|| "n/a".to_owned(), latency);
    let ratio = |of: Option<Interval>| of.map_or_else(String::new, |of| format!("{}x", digits3(of.value)));
    vec![
        one.place.layout.to_string(),
        bytes(one.stored.stored_bytes),
        one.stored.objects.to_string(),
        latency(one.stored.open_ms * 1e3),
        time(one.point.p50_us),
        time(one.point.p95_us),
        digits3(one.point.requests_per_sample),
        time(one.batch.p50_us),
        digits3(one.batch.requests_per_sample),
        spread(&one.scan.samples_per_s),
        ratio(one.scan.of_files),
        digits3(one.scan.bytes_per_sample),
        latency(one.scan.decode_us_per_sample),
        latency(one.scan.cpu_us_per_sample),
    ]
}

/// A table for each tier.
pub(super) fn page<'a>(ran: &'a Ran, plan: &LayoutsPlan, row_bytes: u64, statements: &[LayoutStatement]) -> Page<'a> {
    let tiers = statements.chunk_by(|a, b| a.place.tier == b.place.tier);
    Page {
        ran,
        facts: vec![format!(
            "{} rows of {row_bytes} bytes, {} rounds, batches of {}, {} pieces of a scan at a time",
            plan.rows, ran.repeats, plan.batch_rows, plan.scan_depth
        )],
        badges: Vec::new(),
        parts: vec![
            Part::List("Findings", findings(statements, plan.batch_rows)),
            Part::Tables("Every layout", tiers.map(block).collect(), NOTE),
        ],
    }
}

fn block(here: &[LayoutStatement]) -> Block {
    let bars = |title: &str, value: fn(&LayoutStatement) -> Option<f64>, text| Bars {
        title: title.to_owned(),
        bars: here
            .iter()
            .map(|one| (one.place.layout.to_string(), value(one)))
            .collect(),
        text,
    };
    Block {
        table: Table::of_rows(&here[0].place.tier, &HEADER, 1, here.iter().map(row)),
        bars: vec![
            bars("One entity, p50 (less is better)", |one| one.point.p50_us, latency),
            bars("A batch, p50 (less is better)", |one| one.batch.p50_us, latency),
            bars(
                "A scan, rows a second (more is better)",
                |one| Some(one.scan.samples_per_s.value),
                digits3,
            ),
        ],
    }
}
